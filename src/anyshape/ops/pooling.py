"""Pooling in one dim.

The C++ code of `max_pool1d` reads sizes as plain numbers, which is a program for each length. Pooling the same values
in two dims, of which one has size 1, is one program for every length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F


def max_pool1d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    if input.dim() not in (2, 3) or not input.is_floating_point():
        return torch.max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode)
    steps = kernel_size if stride is None or stride == () or stride == [] else stride
    planes = torch.max_pool2d(
        input.unsqueeze(-2),
        (1, _number(kernel_size)),
        (1, _number(steps)),
        (0, _number(padding)),
        (1, _number(dilation)),
        ceil_mode,
    )
    return planes.squeeze(-2)


def _number(value: Any) -> Any:
    return value[0] if isinstance(value, (tuple, list)) else value


def functional_max_pool1d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    if return_indices:
        return F.max_pool1d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)
    return max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode)


RULES: dict[Any, Callable[..., Any]] = {torch.max_pool1d: max_pool1d, F.max_pool1d: functional_max_pool1d}
