"""Rules for calls whose C++ code reads a length as a plain int: a program for each (torch 2.11 to 2.15)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def linspace(start: Any, end: Any, steps: Any, **options: Any) -> Any:
    kind = options.get("dtype") or torch.get_default_dtype()
    numbers = isinstance(start, (int, float)) and isinstance(end, (int, float))
    if not numbers or kind not in (torch.float32, torch.float64) or "requires_grad" in options:
        return torch.linspace(start, end, steps, **options)
    # As eager's kernel, bit for bit: the first half from the start, the rest from the end, each rounded once.
    options = {**options, "dtype": kind}
    first, last = torch.full((), start, **options), torch.full((), end, **options)
    step, place = (last - first) / torch.sym_max(steps - 1, 1), torch.arange(steps, **options)
    upwards, downwards = torch.addcmul(first, step, place), torch.addcmul(last, -step, steps - 1 - place)
    return torch.where(place < torch.sym_max(steps // 2, 1), upwards, downwards)


def tensor_split(input: Any, indices_or_sections: Any, dim: Any = 0) -> Any:
    count = indices_or_sections
    if type(count) is not int or count < 1 or not -input.dim() <= dim < input.dim():
        return torch.tensor_split(input, indices_or_sections, dim)
    # The first `n % count` parts have an element more than the others: written without asking which they are.
    least, left = input.shape[dim] // count, input.shape[dim] % count
    starts = [i * least + torch.sym_min(i, left) for i in range(count + 1)]
    return tuple(input.narrow(dim, starts[i], starts[i + 1] - starts[i]) for i in range(count))


_EXACT = (torch.float32, torch.float64, torch.int64)  # dtypes that products are made in as they are


def vander(x: Any, N: Any = None, increasing: bool = False) -> Any:
    if isinstance(N, bool) or x.dim() != 1 or x.dtype not in _EXACT:
        return torch.vander(x, N, increasing)
    if x.requires_grad:  # the gradient of `cumprod` is for one size anyway
        return torch.vander(x, N, increasing)
    powers = _powers(x, x.shape[0] if N is None else N)
    return powers if increasing else powers.flip(1)


def _powers(x: Any, count: Any) -> Any:
    first = torch.arange(count, device=x.device) == 0
    return torch.where(first, torch.ones_like(x).unsqueeze(-1), x.unsqueeze(-1)).cumprod(-1)


RULES: dict[Any, Callable[..., Any]] = {
    torch.linspace: linspace,
    torch.tensor_split: tensor_split,
    torch.vander: vander,
}
