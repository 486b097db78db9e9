"""Calls that compute with a length, which C++ code reads as a plain int: a program for each (torch 2.11 to 2.15)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def linspace(start: Any, end: Any, steps: Any, **options: Any) -> Any:
    kind = options.get("dtype") or torch.get_default_dtype()
    numbers = isinstance(start, (int, float)) and isinstance(end, (int, float))
    if not numbers or kind not in (torch.float32, torch.float64) or "requires_grad" in options:
        return torch.linspace(start, end, steps, **options)
    # As eager's kernel, up to the order of its roundings: the first half from the start, the rest from the end.
    step = (end - start) / torch.sym_max(steps - 1, 1)
    place = torch.arange(steps, **{**options, "dtype": kind})
    return torch.where(place < torch.sym_max(steps // 2, 1), start + step * place, end - step * (steps - 1 - place))


def tensor_split(input: Any, indices_or_sections: Any, dim: Any = 0) -> Any:
    count = indices_or_sections
    if type(count) is not int or count < 1 or not -input.dim() <= dim < input.dim():
        return torch.tensor_split(input, indices_or_sections, dim)
    # The first `n % count` parts have an element more than the others: written without asking which they are.
    least, left = input.shape[dim] // count, input.shape[dim] % count
    starts = [i * least + torch.sym_min(i, left) for i in range(count + 1)]
    return tuple(input.narrow(dim, starts[i], starts[i + 1] - starts[i]) for i in range(count))


RULES: dict[Any, Callable[..., Any]] = {torch.linspace: linspace, torch.tensor_split: tensor_split}
