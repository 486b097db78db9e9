"""Products with 0, which are NaN for NaN and infinite inputs.

Owns one repair: Inductor takes `x * 0` for 0, and eager has NaN where `x` is NaN or infinite (torch 2.11 and 2.13; 2.15
does so for whole numbers alone).
"""

from __future__ import annotations

from typing import Any

import torch

from anyshape._torch.repairs.registry import repair


@repair(
    "torch._inductor.fx_passes.joint_graph:UniformValueConstantFolder._add_peephole_patterns",
    scope="compile",
    phase="lowering",
    broken="2.11-2.13",
    symptom="`x * 0` is 0 where x is NaN or infinite; eager has NaN.",
    cause="fx_passes/joint_graph.py:UniformValueConstantFolder takes a product with 0 for 0, of floats too.",
    cure="Products of floats and complex numbers are computed.",
    goes="with torch 2.13; 2.15 does so for whole numbers alone",
    absent="skip",
)
def add_peephole_patterns(stock: Any) -> Any:
    def only_whole_numbers(self: Any) -> None:
        stock(self)
        for node in [node for node in self.node_replacements if _may_be_nan(node.meta["val"])]:
            del self.node_replacements[node], self.node_replacements_shapes[node], self.constant_data_ptrs[node]

    return only_whole_numbers


def _may_be_nan(value: torch.Tensor) -> bool:
    return value.is_floating_point() or value.is_complex()
