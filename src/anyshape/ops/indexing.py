"""Rules for calls whose C++ code reads sizes as plain ints, which specializes on them (torch 2.11 to 2.15)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def kron(input: Any, other: Any) -> Any:
    dims = max(input.dim(), other.dim())
    while input.dim() < dims:
        input = input.unsqueeze(0)
    while other.dim() < dims:
        other = other.unsqueeze(0)
    sizes = [input.shape[d] * other.shape[d] for d in range(dims)]
    for d in range(dims):
        input = input.unsqueeze(2 * d + 1)
        other = other.unsqueeze(2 * d)
    return (input * other).reshape(sizes)


def take_along_dim(input: Any, indices: Any, dim: Any = None) -> Any:
    if dim is None:
        return input.reshape(-1).gather(0, indices.reshape(-1))
    if input.dim() != indices.dim():
        return torch.take_along_dim(input, indices, dim)  # eager's own error
    axis = dim + input.dim() if dim < 0 else dim
    # All other dims are broadcast against one another.
    shared = torch.broadcast_shapes(
        [1 if d == axis else n for d, n in enumerate(input.shape)],
        [1 if d == axis else n for d, n in enumerate(indices.shape)],
    )
    input = input.expand([input.shape[d] if d == axis else n for d, n in enumerate(shared)])
    indices = indices.expand([indices.shape[d] if d == axis else n for d, n in enumerate(shared)])
    return input.gather(axis, indices)


def gradient(input: Any, *, spacing: Any = None, dim: Any = None, axis: Any = None, edge_order: int = 1) -> Any:
    dim = axis if dim is None else dim
    dims = list(range(input.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    steps = (
        [1.0 if spacing is None else spacing] * len(dims) if not isinstance(spacing, (list, tuple)) else list(spacing)
    )
    if any(isinstance(step, torch.Tensor) for step in steps) or len(steps) != len(dims):
        if dim is None:
            return torch.gradient(input, spacing=spacing, edge_order=edge_order)
        return torch.gradient(input, spacing=spacing, dim=dim, edge_order=edge_order)
    return tuple(_difference(input, d, step, edge_order) for d, step in zip(dims, steps, strict=True))


def _difference(x: Any, dim: int, step: Any, edge_order: int) -> Any:
    """Central differences inside, one-sided ones of the given order at the ends."""
    n = x.shape[dim]
    torch._check(n >= edge_order + 1)
    inside = (x.narrow(dim, 2, n - 2) - x.narrow(dim, 0, n - 2)) / (2 * step)
    at = lambda i: x.narrow(dim, i if i >= 0 else n + i, 1)
    if edge_order == 1:
        first, last = (at(1) - at(0)) / step, (at(-1) - at(-2)) / step
    else:
        first = (-1.5 * at(0) + 2 * at(1) - 0.5 * at(2)) / step
        last = (0.5 * at(-3) - 2 * at(-2) + 1.5 * at(-1)) / step
    return torch.cat([first, inside, last], dim)


def masked_select(input: Any, mask: Any) -> Any:
    if mask.dtype is not torch.bool or not input.requires_grad:  # it is the gradient that pins sizes
        return torch.masked_select(input, mask)
    input, mask = torch.broadcast_tensors(input, mask)
    # It keeps its input for the gradient, as `masked_select` does: who writes to it hears of it.
    return torch.take(input, mask.reshape(-1).nonzero().squeeze(1))


def block_diag(*tensors: Any) -> Any:
    if any(t.dim() > 2 for t in tensors) or not any(t.requires_grad for t in tensors):
        return torch.block_diag(*tensors)  # eager's own error, or a graph without the gradient that pins sizes
    blocks = [t if t.dim() == 2 else t.reshape(1, -1) for t in tensors]
    width = sum(block.shape[1] for block in blocks)
    rows, left = [], 0
    for block in blocks:
        rows.append(torch.nn.functional.pad(block, [left, width - left - block.shape[1]]))
        left = left + block.shape[1]
    return torch.cat(rows)


def sgn(input: Any) -> Any:
    return torch.sgn(input) if input.is_complex() else torch.sign(input)  # the gradient of `sgn` is what pins


_SUMMED_AS = {torch.float32: torch.float64, torch.complex64: torch.complex128}  # by eager's kernel on the CPU


def trace(input: Any) -> Any:
    if input.dim() != 2 or not input.requires_grad:
        return torch.trace(input)  # eager's own error, or a graph without the gradient that asks which side is longer
    wide = _SUMMED_AS.get(input.dtype, input.dtype) if input.device.type == "cpu" else input.dtype
    return input.diagonal().sum(dtype=wide).to(input.dtype)


def index_fill(input: Any, dim: Any, index: Any, value: Any) -> Any:
    if input.device.type != "cpu" and input.dim():  # eager refuses to fill nothing, and a kernel of a GPU ends all work
        torch._check(input.shape[dim] != 0)
    return input.index_fill(dim, index, value)


RULES: dict[Any, Callable[..., Any]] = {
    torch.sgn: sgn,
    torch.trace: trace,
    torch.block_diag: block_diag,
    torch.gradient: gradient,
    torch.index_fill: index_fill,
    torch.kron: kron,
    torch.masked_select: masked_select,
    torch.take_along_dim: take_along_dim,
}
