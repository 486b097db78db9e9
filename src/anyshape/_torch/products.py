"""The gradient of a running product.

Owns one repair: torch's `cumprod_backward` loops over a size when it is traced (torch 2.11 to 2.15), and so has a
program for each. It is written here as the sums that eager computes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch._C import DispatchKey

_OP = torch.ops.aten.cumprod_backward.default


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


@contextlib.contextmanager
def patches() -> Iterator[None]:
    """While a capture runs, under Dynamo's compile lock."""
    key = DispatchKey.CompositeImplicitAutograd
    if key in _OP.py_kernels:  # torch has one of its own
        yield
        return
    _OP.py_kernels[key] = _cumprod_backward
    _OP._dispatch_cache.clear()
    try:
        yield
    finally:
        del _OP.py_kernels[key]
        _OP._dispatch_cache.clear()
