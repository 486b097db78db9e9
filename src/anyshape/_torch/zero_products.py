"""Products with 0.

Owns one repair: Inductor takes `x * 0` for 0, and eager has NaN where `x` is NaN or infinite (torch 2.11 and 2.13; 2.15
does so for whole numbers alone).
"""

from __future__ import annotations

import contextlib
from typing import Any
from unittest import mock

import torch
from torch._inductor.fx_passes.joint_graph import UniformValueConstantFolder

_NAME = "_add_peephole_patterns"


def patches() -> contextlib.AbstractContextManager[Any]:
    stock = getattr(UniformValueConstantFolder, _NAME, None)
    if stock is None:
        return contextlib.nullcontext()

    def only_whole_numbers(self: Any) -> None:
        stock(self)
        for node in [node for node in self.node_replacements if _may_be_nan(node.meta["val"])]:
            del self.node_replacements[node], self.node_replacements_shapes[node], self.constant_data_ptrs[node]

    return mock.patch.object(UniformValueConstantFolder, _NAME, only_whole_numbers)


def _may_be_nan(value: torch.Tensor) -> bool:
    return value.is_floating_point() or value.is_complex()
