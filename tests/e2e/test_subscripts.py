"""Subscripts by numbers that are made of sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.testing import difference

SIZES = ((3, 4), (3, 5), (4, 7), (3, 2), (5, 5), (1, 3), (3, 1), (2, 0), (0, 3))


def _write_last(x: Tensor) -> Tensor:
    x[:, x.shape[1] - 1] = 5.0
    return x


def _add_to_the_middle(x: Tensor) -> Tensor:
    y = x * 1
    y[x.shape[0] // 2] += 1
    return y


def _write_a_column(x: Tensor) -> Tensor:
    y = x * 1
    y[..., x.shape[1] - 1, None] = y[:, :1]
    return y


ONE_PROGRAM: dict[str, Callable[[Tensor], Any]] = {
    "last": lambda x: x[:, x.shape[1] - 1],
    "last of all": lambda x: x[x.shape[0] // 2, x.shape[1] - 1],
    "after an ellipsis": lambda x: x[None, ..., x.shape[1] // 2],
    "alone": lambda x: x[x.shape[0] - 1],
    "from behind": lambda x: x[:, -x.shape[1]],
    "beside a mask": lambda x: x[x.sum(1) > 0, x.shape[1] - 1],
    "written view": lambda x: x[:, x.shape[1] - 1].relu_(),
    "beside a slice": lambda x: x.T[x.shape[1] // 2, 1:],
    "of a list": lambda x: x[:, [0, x.shape[1] - 1]],
    "other size": lambda x: x[:, x.shape[0]],
    "write": _write_last,
    "write in the middle": _add_to_the_middle,
    "write a column": _write_a_column,
}


@pytest.mark.parametrize("name", ONE_PROGRAM)
def test_one_program(name: str) -> None:
    fn = ONE_PROGRAM[name]
    f = anyshape.compile(fn, backend="aot_eager")
    for size in SIZES:
        if name != "of a list" or 0 not in size:  # indices into nothing are the kernel's to refuse
            assert difference(fn, f, (torch.randn(size),)) is None, size
    assert len(f.programs) == 1


@pytest.mark.parametrize("name", ["last", "last of all", "write a column"])
def test_with_inductor_and_gradients(name: str) -> None:
    fn = ONE_PROGRAM[name]
    f = anyshape.compile(fn)
    for size in SIZES[:6]:
        assert difference(fn, f, (torch.randn(size, requires_grad=True),), backward=True) is None, size
    assert len(f.programs) == 1


@pytest.mark.parametrize("fn", [lambda x: x[:, x.shape[1] - 3], lambda x: x[:, 2 - x.shape[1]]])
def test_counted_from_behind_is_another_behaviour(fn: Callable[[Tensor], Tensor]) -> None:
    """Sizes and strides are the same there; where the view begins is not."""
    for order in (SIZES, SIZES[::-1]):
        torch.compiler.reset()
        f = anyshape.compile(fn, backend="aot_eager")
        for size in order:
            assert difference(fn, f, (torch.randn(size),)) is None, size
        assert len(f.programs) == 2
