"""Rules for `squeeze` of oblivious sizes.

Owns the rule of oblivious semantics: a size that is not known to be 1 is not 1, also when the graph is run op by op.
"""

from __future__ import annotations

from typing import Any

import torch


def squeeze(input: torch.Tensor, dim: Any = None) -> torch.Tensor:
    rank = input.dim()
    if dim is None:
        asked = list(range(rank))
    elif isinstance(dim, int):
        asked = [dim]
    else:
        asked = list(dim)
    units = [d for d in asked if input.shape[d] == 1] if rank else []
    if not units:
        return input.view_as(input)
    return torch.squeeze(input, tuple(units))


RULES = {torch.squeeze: squeeze}
