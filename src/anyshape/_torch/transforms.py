"""The layouts of Fourier transforms.

Owns one repair: torch tells the strides of a transform by resizing its result (2.11 to 2.15), and a tensor that is
resized asks whether it has those sizes already; equal and unequal sizes had a program each. It is laid out unasked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import torch
import torch._meta_registrations as meta
from torch._prims_common import make_contiguous_strides_for

_NAME = "_exec_fft"


class _Result:
    """A tensor that is not asked what it is resized for."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tensor, name)

    def resize_(self, sizes: Sequence[Any], *, memory_format: torch.memory_format) -> None:
        self.tensor.as_strided_(sizes, make_contiguous_strides_for(sizes), 0)


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
