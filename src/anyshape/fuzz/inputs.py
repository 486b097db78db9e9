"""Values for the arguments of a call.

Owns `tensor`, which is also what a repro file carries: it makes the same tensor from the same numbers everywhere.
"""

from __future__ import annotations

from typing import Any

import torch

from anyshape.fuzz.case import NUMBER, Call, Case

LAYOUTS = ("contiguous", "transposed", "sliced", "offset", "expanded", "outermost")
SHORT = ("bfloat16", "float16")  # of two or three digits
DTYPES = ("float32", "float64", "bfloat16", "int64", "int32", "bool", "complex64")


def tensor(shape, dtype, layout, seed, grad=False, device="cpu"):  # type: ignore[no-untyped-def]
    """A tensor of small values; `layout` says how it lies in memory."""
    generator = torch.Generator().manual_seed(seed)
    kind = getattr(torch, dtype)
    drawn = list(shape)
    if layout == "transposed" and len(shape) > 1:
        drawn[-1], drawn[-2] = drawn[-2], drawn[-1]
    elif layout == "outermost" and len(shape) > 1:  # as channels-last: the second dim is the innermost
        drawn = [shape[0], *shape[2:], shape[1]]
    elif layout == "sliced" and shape:
        drawn[-1] = 2 * drawn[-1] + 1
    elif layout == "offset" and shape:
        drawn[0] += 2
    elif layout == "expanded" and shape:
        drawn[0] = 1
    if kind.is_floating_point or kind.is_complex:
        # Quarters are exact in every dtype, and ties are as likely as they are in practice.
        value = torch.randint(-8, 9, drawn, generator=generator).to(torch.float64) / 4
        value = torch.complex(value, value.flip(0) if value.dim() else value) if kind.is_complex else value
    else:
        value = torch.randint(0, 2 if dtype == "bool" else 5, drawn, generator=generator)
    value = value.to(kind).to(device)
    if layout == "transposed" and len(shape) > 1:
        value = value.transpose(-1, -2)
    elif layout == "outermost" and len(shape) > 1:
        value = value.movedim(-1, 1)
    elif layout == "sliced" and shape:
        value = value[..., 1::2]
    elif layout == "offset" and shape:
        value = value[2:]
    elif layout == "expanded" and shape:
        value = value.expand(shape)
    return value.requires_grad_() if grad and (kind.is_floating_point or kind.is_complex) else value


def arguments(case: Case, call: Call, device: str = "cpu") -> tuple[Any, ...]:
    """The arguments of one call."""
    sizes = dict(call.sizes)
    made: list[Any] = []
    for number, (declared, layout) in enumerate(zip(case.inputs, call.layouts, strict=True)):
        shape = tuple(sizes[d] for d in declared.dims)
        if declared.dtype == NUMBER:
            made.append(shape[0])
        else:
            made.append(tensor(shape, declared.dtype, layout, call.seed + number, declared.grad, device))
    return tuple(made)
