"""Rules for reductions of empty tensors: `max` and `min` raise, variances are nan.

Eager raises for an empty `max` and `min`; torch's fake implementations do not (2.11 to 2.15), and Inductor's kernels
give back an infinity. What eager insists on is said here, so that such a call is eager's and raises as eager does.
The mean of nothing is nan; Inductor's `var_mean` and `std_mean` make it 0 (2.13 and 2.15), and its `mean` does not.
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


def _with_mean(reduction: Callable[..., Any]) -> Callable[..., Any]:
    def rule(input: Any, *args: Any, **kwargs: Any) -> Any:
        spread, _ = reduction(input, *args, **kwargs)
        dim = kwargs.get("dim", args[0] if args and not isinstance(args[0], bool) else None)
        return spread, torch.mean(input, dim, kwargs.get("keepdim", args[2] if len(args) > 2 else False))

    return rule


RULES: dict[Any, Callable[..., Any]] = {
    torch.max: _over_something(torch.max),
    torch.min: _over_something(torch.min),
    torch.var_mean: _with_mean(torch.var_mean),
    torch.std_mean: _with_mean(torch.std_mean),
}
