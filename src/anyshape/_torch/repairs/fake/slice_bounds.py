"""Slices with symbolic bounds, clamped as in eager instead of becoming unbacked.

Owns the meaning of `x[start:stop]` for free sizes. torch's fake implementation (fake_impls.py,
`_compute_slice_index`) makes an unbacked size when it cannot tell the sign of a bound or whether it lies inside; here
the bound is clamped as eager clamps it, and only the sign is a question.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch._subclasses import fake_impls
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

from anyshape._torch.repairs.registry import repair

_stock_index = fake_impls._compute_slice_index


@repair(
    "torch._subclasses.fake_impls:_compute_slice_index",
    scope="capture",
    phase="fake run",
    broken="2.11-2.15",
    symptom="`x[start:stop]` has a size that nothing is known of.",
    cause="fake_impls.py:_compute_slice_index makes an unbacked size when it cannot tell where a bound lies.",
    cure="The bound is clamped as eager clamps it, and only its sign is a question.",
    goes="when _compute_slice_index clamps symbolic bounds",
)
def index(size: Any, bound: Any) -> Any:
    """A slice bound within 0 and `size`."""
    if _is_of_data(size) or _is_of_data(bound):
        return _stock_index(size, bound)
    if bound < 0:
        inside = statically_known_true(bound + size >= 0)
        return bound + size if inside else torch.sym_max(bound + size, 0)
    return bound if statically_known_true(bound <= size) else torch.sym_min(bound, size)


def _leaves_lengths_open() -> bool:
    """Whether a slice between two known bounds has an unbacked length where their order is not known."""
    return "sym_max" not in fake_impls.slice_forward.__code__.co_names


@repair(
    "torch._subclasses.fake_impls:op_implementations_dict[aten.slice.Tensor]",
    scope="capture",
    phase="fake run",
    broken="2.11",
    symptom="`table[:, n:]` has a size that nothing is known of, and Inductor does not compile it.",
    cause="fake_impls.py:slice_forward makes an unbacked size when it cannot tell which bound is greater.",
    cure="The length is that between the bounds, and not below 0.",
    goes="with torch 2.11",
    needed=_leaves_lengths_open,
)
def between(stock: Any) -> Any:
    def slice_forward(
        mode: Any, func: Any, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
    ) -> Any:
        bounds = [b for b in (start, end) if b is not None]
        free = any(isinstance(b, torch.SymInt) for b in bounds)
        refused = not -x.dim() <= dim < x.dim() or not statically_known_true(step > 0)
        if not free or refused or x.is_quantized or any(_is_of_data(n) for n in (*bounds, step, *x.shape)):
            return stock(mode, func, x, dim, start, end, step)
        dim = dim + x.dim() if dim < 0 else dim
        sizes, strides = list(x.shape), list(x.stride())
        first = 0 if start is None else index(sizes[dim], start)
        to_the_end = end is None or statically_known_true(end == sys.maxsize)
        last = sizes[dim] if to_the_end else index(sizes[dim], end)
        length = last - first if statically_known_true(last >= first) else torch.sym_max(last - first, 0)
        offset = x.storage_offset() + first * strides[dim]
        sizes[dim], strides[dim] = (length + step - 1) // step, strides[dim] * step
        return x.as_strided(sizes, strides, offset)

    return slice_forward


def _is_of_data(number: Any) -> bool:
    return isinstance(number, torch.SymInt) and bool(free_unbacked_symbols(number))
