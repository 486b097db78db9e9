"""Calls whose fake kernel lays its result out otherwise than the kernel does.

- `batch_norm` of one-dimensional signals on the CPU gives a contiguous result whatever the strides of its input;
  torch's fake kernel says that it keeps them (2.13 and 2.15, stock `torch.compile` too), and a view of the result fails
  when the graph runs. In two dims and more a layout of channels last is kept by both, so nothing is done there.
- `one_hot` gives a contiguous result in eager, and one in the order of its input compiled (2.11 to 2.15).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


def one_hot(tensor: Any, num_classes: int = -1) -> Any:
    return F.one_hot(tensor.contiguous(), num_classes)


RULES: dict[Any, Callable[..., Any]] = {F.batch_norm: batch_norm, F.one_hot: one_hot}
