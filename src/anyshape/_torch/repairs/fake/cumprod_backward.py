"""The gradient of `cumprod` without a Python loop over the size.

Owns one repair: torch's `cumprod_backward` loops over a size when it is traced (torch 2.11 to 2.15), and so has a
program for each. It is written here as the sums that eager computes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._C import DispatchKey

from anyshape._torch.repairs.registry import Place, repair

_OP = torch.ops.aten.cumprod_backward.default
_KEY = DispatchKey.CompositeImplicitAutograd


def _kernels() -> tuple[Any, Any]:
    return _OP.py_kernels, _KEY


@repair(
    Place("torch.ops.aten.cumprod_backward.default:py_kernels[CompositeImplicitAutograd]", _kernels),
    scope="capture",
    phase="AOT",
    broken="2.11-2.15",
    symptom="A program for each length of a running product that is differentiated.",
    cause="FunctionsManual.cpp:cumprod_backward loops over a size when it is traced.",
    cure="It is written as the sums that eager computes.",
    goes="when cumprod_backward has a formula for symbolic sizes",
    adds=True,
    needed=lambda: _KEY not in _OP.py_kernels,
    then=_OP._dispatch_cache.clear,
)
def _cumprod_backward(grad: torch.Tensor, input: torch.Tensor, dim: int, output: torch.Tensor) -> torch.Tensor:
    if input.dim() == 0:
        return grad
    zero = input == 0
    zeros = zero.cumsum(dim)
    before, first = zeros == 0, zero & (zeros == 1)
    # Before the first zero each element divides what comes after it, up to that zero.
    after = (grad * output.conj()).masked_fill(~before, 0).flip(dim).cumsum(dim).flip(dim)
    # The first zero has the products without it, up to the second.
    without = input.masked_fill(first, 1).cumprod(dim).conj()
    there = (grad * without).masked_fill(zeros != 1, 0).sum(dim, keepdim=True)
    return torch.where(before, after / input.masked_fill(~before, 1).conj(), there.masked_fill(~first, 0))
