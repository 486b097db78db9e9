"""Gradients of `avg_pool` with `ceil_mode` as fallback kernels.

Owns one repair: with `ceil_mode` the last window may reach beyond the input, and Inductor divides its gradient by the
elements of a whole one (torch 2.11 to 2.15). There eager's kernel is called.
"""

from __future__ import annotations

from typing import Any

import torch
import torch._inductor.lowering as inductor_lowering

from anyshape._torch.repairs.registry import repair

_FALLBACKS = {
    torch.ops.aten.avg_pool2d_backward: "fallback_avg_pool2d_backward",
    torch.ops.aten.avg_pool3d_backward: "fallback_avg_pool3d_backward",
}


@repair(
    "torch._inductor.lowering:lowerings[aten.avg_pool2d_backward]",
    "torch._inductor.lowering:lowerings[aten.avg_pool2d_backward.default]",
    "torch._inductor.lowering:lowerings[aten.avg_pool3d_backward]",
    "torch._inductor.lowering:lowerings[aten.avg_pool3d_backward.default]",
    scope="compile",
    phase="lowering",
    broken="2.11-2.15",
    symptom="The gradient of an average over windows with `ceil_mode` is too small at the edge.",
    cause="lowering.py:avg_pool2d_backward divides by the elements of a whole window where the last one is cut off.",
    cure="With `ceil_mode` eager's kernel is called.",
    goes="when the lowering counts the elements that a window has",
    absent="skip",
)
def avg_pool_backward(stock: Any, op: Any) -> Any:
    kernel = getattr(inductor_lowering, _FALLBACKS[getattr(op, "overloadpacket", op)], None)
    if kernel is None:
        return stock

    def lower(grad: Any, x: Any, size: Any, stride: Any, padding: Any, ceil_mode: bool, *args: Any) -> Any:
        return (kernel if ceil_mode else stock)(grad, x, size, stride, padding, ceil_mode, *args)

    return lower
