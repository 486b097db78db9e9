"""Batch norm of one-dimensional signals.

The CPU kernel gives a contiguous result whatever the strides of its input; torch's fake kernel says that it keeps them
(2.13 and 2.15, stock `torch.compile` too), and a view of the result fails when the graph runs. Given a contiguous
input, both say the same. In two dims and more a layout of channels last is kept by both, so nothing is done there.
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
    if input.dim() == 3 and input.device.type == "cpu":
        input = input.contiguous()
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


RULES: dict[Any, Callable[..., Any]] = {F.batch_norm: batch_norm}
