"""Rules for symbolic sizes given to plain int arguments of C++ or Python: a program for each.

These rules hold where such a number is symbolic, and only there (torch 2.11 to 2.15).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F


def one_hot(tensor: Any, num_classes: Any = -1) -> Any:
    if tensor.dtype is not torch.int64 or num_classes < 1:
        return F.one_hot(tensor, num_classes)  # eager's own error, or a number that is in the data
    classes = torch.arange(num_classes, device=tensor.device)
    # `gather` raises RuntimeError for an index out of bounds, as eager does for a class.
    known = classes.gather(0, tensor.reshape(-1)).reshape(tensor.shape)
    return (known.unsqueeze(-1) == classes).to(torch.int64)


def triu_indices(row: Any, col: Any, offset: Any = 0, **options: Any) -> Any:
    return _places(torch.ones(row, col, dtype=torch.bool, device=options.get("device")).triu(offset), options)


def tril_indices(row: Any, col: Any, offset: Any = 0, **options: Any) -> Any:
    return _places(torch.ones(row, col, dtype=torch.bool, device=options.get("device")).tril(offset), options)


def _places(chosen: Any, options: Any) -> Any:
    return chosen.nonzero().t().contiguous().to(options.get("dtype") or torch.int64)


def hann_window(window_length: Any, periodic: bool = True, **options: Any) -> Any:
    return hamming_window(window_length, periodic, 0.5, 0.5, **options)


def hamming_window(
    window_length: Any, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, **options: Any
) -> Any:
    kind = options.get("dtype") or torch.get_default_dtype()
    if window_length < 2 or kind not in (torch.float32, torch.float64) or "requires_grad" in options:
        return torch.hamming_window(window_length, periodic, alpha, beta, **options)
    places = torch.arange(window_length, **{**options, "dtype": kind})
    return (places * (math.pi * 2.0 / (window_length - (0 if periodic else 1)))).cos() * -beta + alpha


def log(x: Any, base: Any = math.e) -> Any:
    if x <= 0:
        return math.log(x, base)  # eager's own error
    return math.log2(x) * math.log(2) if base == math.e else math.log2(x) / math.log2(base)


def _is_whole(input: Any, kernel_size: Any, padding: Any, dims: int) -> bool:
    """Whether there is one window, which has all there is."""
    window = kernel_size if isinstance(kernel_size, (tuple, list, torch.Size)) else (kernel_size,) * dims
    unpadded = padding in (0, (0,), (0,) * dims, [0], [0] * dims)
    if len(window) != dims or input.dim() not in (dims + 1, dims + 2) or not unpadded or not input.is_floating_point():
        return False
    return all(k == n and n > 0 for k, n in zip(window, input.shape[-dims:]))  # noqa: B905 (Dynamo knows no `strict`)


def _average(pool: Callable[..., Any], dims: int) -> Callable[..., Any]:
    def rule(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, *rest: Any, **options: Any) -> Any:
        if rest or options or not _is_whole(input, kernel_size, padding, dims):
            return pool(input, kernel_size, stride, padding, *rest, **options)
        return input.mean(tuple(range(-dims, 0)), keepdim=True)

    return rule


def _most(pool: Callable[..., Any], dims: int) -> Callable[..., Any]:
    def rule(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, *rest: Any, **options: Any) -> Any:
        if rest or options or not _is_whole(input, kernel_size, padding, dims):
            return pool(input, kernel_size, stride, padding, *rest, **options)
        most = input.flatten(-dims).max(-1).values  # one of several equal ones has the gradient
        for _ in range(dims):
            most = most.unsqueeze(-1)
        return most

    return rule


RULES: dict[Any, Callable[..., Any]] = {
    F.one_hot: one_hot,
    torch.triu_indices: triu_indices,
    torch.tril_indices: tril_indices,
    torch.hann_window: hann_window,
    torch.hamming_window: hamming_window,
    math.log: log,
    F.avg_pool1d: _average(F.avg_pool1d, 1),
    F.avg_pool2d: _average(F.avg_pool2d, 2),
    F.avg_pool3d: _average(F.avg_pool3d, 3),
    F.max_pool2d: _most(F.max_pool2d, 2),
    F.max_pool3d: _most(F.max_pool3d, 3),
}
