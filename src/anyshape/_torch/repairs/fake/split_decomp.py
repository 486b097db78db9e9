"""Decomposition of `split` without the question whether the tensor is empty.

Owns one repair: torch's own code asks first whether there is nothing to split (2.11 to 2.15), and so nothing and a
single part, which is the whole in both, had a program each. The number of parts is all that is asked here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._decomp import decomposition_table
from torch.fx.experimental.symbolic_shapes import guard_int

from anyshape._torch.repairs.registry import repair
from anyshape._torch.symbolic.shape_env import FreeShapeEnv

_OP = torch.ops.aten.split.Tensor
_stock_split = decomposition_table.get(_OP)


@repair(
    "torch._decomp:decomposition_table[aten.split.Tensor]",
    scope="capture",
    phase="fake run",
    broken="2.11-2.15",
    symptom="`x.split(n)` of nothing and of a single part have a program each, though both give the whole.",
    cause="_decomp/decompositions.py:split asks first whether there is nothing to split.",
    cure="The number of parts is all that is asked.",
    goes="when the decomposition asks so",
    absent="skip",
)
def _split(self: torch.Tensor, split_size: Any, dim: int = 0) -> Any:
    if not isinstance(split_size, int) or split_size <= 0:
        assert _stock_split is not None
        return _stock_split(self, split_size, dim)
    length = self.shape[dim]
    env = length.node.shape_env if isinstance(length, torch.SymInt) else None
    if isinstance(env, FreeShapeEnv):
        env.recording.part_lengths.add(split_size)
    parts = guard_int(torch.sym_max((length + split_size - 1) // split_size, 1))
    return torch.split(self, [split_size] * (parts - 1) + [length - split_size * (parts - 1)], dim)
