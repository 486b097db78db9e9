"""Meta kernels of FFTs: strides without a resize that asks whether sizes are equal.

Owns one repair: torch tells the strides of a transform by resizing its result (2.11 to 2.15), and a tensor that is
resized asks whether it has those sizes already; equal and unequal sizes had a program each. It is laid out unasked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._prims_common import make_contiguous_strides_for

from anyshape._torch.repairs.registry import repair


class _Result:
    """A tensor that is not asked what it is resized for."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tensor, name)

    def resize_(self, sizes: Sequence[Any], *, memory_format: torch.memory_format) -> None:
        self.tensor.as_strided_(sizes, make_contiguous_strides_for(sizes), 0)


@repair(
    "torch._meta_registrations:_exec_fft",
    scope="capture",
    phase="fake run",
    broken="2.11-2.15",
    symptom="Fourier transforms of equal and of unequal sizes have a program each.",
    cause="_meta_registrations.py:_exec_fft resizes its result, and what is resized asks whether it has those sizes.",
    cure="The result is laid out unasked.",
    goes="when _exec_fft lays out its result without resizing it",
    absent="skip",
)
def exec_fft(stock: Any) -> Any:
    def executed(out: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        stock(_Result(out), *args, **kwargs)
        return out

    return executed
