"""Reductions that have no result over nothing.

Eager raises for an empty `max` and `min`; torch's fake implementations do not (2.11 to 2.15), and Inductor's kernels
give back an infinity. What eager insists on is said here, so that such a call is eager's and raises as eager does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _over_something(reduction: Callable[..., Any]) -> Callable[..., Any]:
    def rule(input: Any, *args: Any, **kwargs: Any) -> Any:
        dim = kwargs.get("dim", args[0] if args else None)
        if dim is None:
            torch._check(input.numel() != 0)
        elif isinstance(dim, int) and input.dim() != 0 and -input.dim() <= dim < input.dim():
            torch._check(input.shape[dim] != 0)
        return reduction(input, *args, **kwargs)

    return rule


RULES: dict[Any, Callable[..., Any]] = {torch.max: _over_something(torch.max), torch.min: _over_something(torch.min)}
