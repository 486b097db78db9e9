"""Calls whose C++ code reads sizes as plain ints, which pins them (torch 2.11 to 2.15)."""

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


RULES: dict[Any, Callable[..., Any]] = {torch.kron: kron, torch.take_along_dim: take_along_dim}
