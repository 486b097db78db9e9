"""Jagged nested tensors: sizes of the tensors that they wrap are what is free of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import anyshape

LENGTHS = ((3, 5), (2, 4, 1), (7, 2), (3,), (0, 2))


def jagged(*lengths: int) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.randn(n, 8) for n in lengths], layout=torch.jagged)


def attention(x: Any) -> Any:
    q = x.unflatten(-1, [2, 4]).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q, q).transpose(1, 2).flatten(-2)


def same(f: Callable[..., Any], fn: Callable[..., Any], *args: Any) -> None:
    got, wanted = f(*args), fn(*args)
    assert got.is_nested == wanted.is_nested
    for part in ("values", "offsets") if got.is_nested else ("clone",):
        torch.testing.assert_close(getattr(got, part)(), getattr(wanted, part)())


@pytest.mark.parametrize(
    ("fn", "programs"),
    [
        pytest.param(lambda x: x.sin() * 2, 1, id="pointwise"),
        pytest.param(lambda x: F.linear(x, torch.ones(8, 8)), 1, id="linear"),
        pytest.param(lambda x: x.to_padded_tensor(0.0), 1, id="padded"),
        pytest.param(lambda x: x.sum(-1), 1, id="sum"),
        pytest.param(lambda x: x.sin() if x.size(0) > 2 else x.cos(), 2, id="branch"),
        pytest.param(attention, 1, id="attention"),
    ],
)
def test_as_an_argument(fn: Callable[..., Any], programs: int) -> None:
    f = anyshape.compile(fn, backend="aot_eager")
    for lengths in LENGTHS[: 4 if fn is attention else None]:  # torch's own attention knows no empty part
        same(f, fn, jagged(*lengths))
    assert (len(f.programs), f.fallbacks) == (programs, {})


def test_made_inside() -> None:
    def fn(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return torch.nested.nested_tensor_from_jagged(values, offsets) * 2

    f = anyshape.compile(fn, backend="aot_eager")
    for n in range(4):
        same(f, fn, torch.randn(2 * n + 2, 4), torch.tensor([0, n + 1, 2 * n + 2]))
    assert (len(f.programs), f.fallbacks) == (1, {})
