"""Gradients of averages over windows.

Owns one repair: with `ceil_mode` the last window may reach beyond the input, and Inductor divides its gradient by the
elements of a whole one (torch 2.11 to 2.15). There eager's kernel is called.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
import torch._inductor.lowering as inductor_lowering

_NAMES = ("avg_pool2d_backward", "avg_pool3d_backward")


def _whole_windows(stock: Callable[..., Any], kernel: Callable[..., Any]) -> Callable[..., Any]:
    def lower(grad: Any, x: Any, size: Any, stride: Any, padding: Any, ceil_mode: bool, *args: Any) -> Any:
        return (kernel if ceil_mode else stock)(grad, x, size, stride, padding, ceil_mode, *args)

    return lower


def patches() -> contextlib.AbstractContextManager[Any]:
    known = inductor_lowering.lowerings
    changed: dict[Any, Any] = {}
    for name in _NAMES:
        kernel, op = getattr(inductor_lowering, f"fallback_{name}", None), getattr(torch.ops.aten, name)
        if kernel is not None:
            changed |= {key: _whole_windows(known[key], kernel) for key in (op, op.default) if key in known}
    return mock.patch.dict(known, changed)
