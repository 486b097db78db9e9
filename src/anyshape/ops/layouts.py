"""Rules for calls whose meta kernel gives other strides than the kernel.

- `batch_norm` of one-dimensional signals on the CPU gives a contiguous result whatever the strides of its input;
  torch's fake kernel says that it keeps them (2.13 and 2.15, stock `torch.compile` too), and a view of the result fails
  when the graph runs. In two dims and more a layout of channels last is kept by both, so nothing is done there.
- `roll` is a concatenation in eager, which keeps a layout of channels last, and the choice of rows for the fake kernel
  (2.11 to 2.15), which does not.
- `interpolate` of a signal to the nearest values gives a contiguous result in eager, and one in the order of its input
  compiled (2.11 to 2.15).
- `one_hot` gives a contiguous result in eager, and one in the order of its input compiled (2.11 to 2.15).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F


def batch_norm(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    result = F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    # The result and not the input: the kernel sums in the order in which its input lies.
    return result.contiguous() if input.dim() == 3 and input.device.type == "cpu" else result


def interpolate(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", *rest: Any, **options: Any
) -> Any:
    result = F.interpolate(input, size, scale_factor, mode, *rest, **options)
    return result.contiguous() if input.dim() == 3 and mode.startswith("nearest") else result


def one_hot(tensor: Any, num_classes: int = -1) -> Any:
    return F.one_hot(tensor.contiguous(), num_classes)


def roll(input: Any, shifts: Any, dims: Any = ()) -> Any:
    by = [shifts] if isinstance(shifts, int) else list(shifts)
    along = [dims] if isinstance(dims, int) else list(dims)
    if any(isinstance(n, bool) for n in (*by, *along)):
        return torch.roll(input, shifts, dims)  # eager's own error
    if len(by) == 1 and not along:
        return _rolled(input.flatten(), by[0], 0).view(input.shape)
    if len(by) != len(along) or input.dim() == 0:
        return torch.roll(input, shifts, dims)  # eager's own error
    for shift, dim in zip(by, along, strict=True):
        input = _rolled(input, shift, dim)
    return input


def _rolled(input: Any, shift: Any, dim: int) -> Any:
    size = input.shape[dim]
    start = (size - shift) % max(size, 1)
    return torch.cat([input.narrow(dim, start, size - start), input.narrow(dim, 0, start)], dim)


RULES: dict[Any, Callable[..., Any]] = {
    F.batch_norm: batch_norm,
    F.interpolate: interpolate,
    F.one_hot: one_hot,
    torch.roll: roll,
}
