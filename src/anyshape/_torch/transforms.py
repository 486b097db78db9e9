"""Fourier transforms of any length.

Owns two repairs. torch tells the strides of a transform by resizing its result (2.11 to 2.15), and a tensor that is
resized asks whether it has those sizes already; equal and unequal sizes had a program each. It is laid out unasked. And
the gradient of a real transform asks whether there is another half, to fill it with zeros or to count it twice: lengths
of 1 and 2 have none, and to do so with nothing is the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import sympy
import torch
import torch._meta_registrations as meta
from torch._prims_common import make_contiguous_strides_for

from anyshape.questions import is_in

_NAME = "_exec_fft"
# fft_r2c_backward and fft_c2r_backward of FunctionsManual.cpp, which run under the line of the engine's call.
_FORMULAS = ("FftR2CBackward0", "FftC2RBackward0")
_ENGINE = "torch/autograd/graph.py"


class _Result:
    """A tensor that is not asked what it is resized for."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tensor, name)

    def resize_(self, sizes: Sequence[Any], *, memory_format: torch.memory_format) -> None:
        self.tensor.as_strided_(sizes, make_contiguous_strides_for(sizes), 0)


def has_another_half(question: sympy.Basic, locate: Callable[[], tuple[str, str]]) -> bool:
    """Whether the gradient of a real transform asks if there is another half; the length is 1 at least."""
    if not isinstance(question, sympy.StrictGreaterThan) or question.rhs != 0:
        return False
    formula = torch._C._current_autograd_node()
    return formula is not None and formula.name() in _FORMULAS and is_in((_ENGINE,), locate()[1])


@contextlib.contextmanager
def patches() -> Iterator[None]:
    """While a capture runs, under Dynamo's compile lock."""
    original = getattr(meta, _NAME, None)
    if original is None:
        yield
        return

    def exec_fft(out: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        original(_Result(out), *args, **kwargs)
        return out

    with mock.patch.object(meta, _NAME, exec_fft):
        yield
