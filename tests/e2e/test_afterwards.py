"""Calls whose number of results follows a size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.testing import difference, expect_programs

SIZES = (5, 7, 3, 1, 0, 2)


def _rows(x: Tensor) -> Any:
    return torch.tanh(x).unbind()


ENDINGS: dict[str, Callable[..., Any]] = {
    "unbind": lambda x: x.unbind(),
    "unbind of a result": lambda x: torch.unbind(x * 2, dim=0),
    "unbind_copy": lambda x: torch.unbind_copy(x + 1),
    "split": lambda x: torch.split(x, 2),
    "split by keyword": lambda x: torch.split(x * 2, split_size_or_sections=2, dim=0),
    "split, a method": lambda x: (x - 1).split(3),
    "chunk": lambda x: x.chunk(3, 0),
    "through a function": lambda x: _rows(x + 1),
    "along the last dim": lambda x: x.t().split(2, dim=-1),
}


@pytest.mark.parametrize("fn", ENDINGS.values(), ids=ENDINGS.keys())
@pytest.mark.parametrize("order", [SIZES, SIZES[::-1]], ids=["many first", "few first"])
def test_one_program(fn: Callable[..., Any], order: tuple[int, ...]) -> None:
    f = anyshape.compile(fn, backend="aot_eager", fullgraph=True)
    with expect_programs(1):
        for n in order:
            x = torch.randn(n, 3)
            assert difference(fn, f, (x,)) is None
            assert type(f(x)) is type(fn(x))
    assert f.fallbacks == {}
    assert sum(p.calls for p in f.programs) == 2 * len(order)


def _whole(x: Tensor) -> Tensor:
    first, *_ = x.split(2)
    return first.exp()


def _written(x: Tensor) -> Tensor:
    x.split(2)[0].mul_(3)
    return x + 1


def _joined(x: Tensor) -> Tensor:
    return torch.cat([part * (i + 1) for i, part in enumerate(x.split(2))])


@pytest.mark.parametrize("order", [(2, 1, 0), (0, 1, 2)], ids=["nothing last", "nothing first"])
@pytest.mark.parametrize("fn", [_whole, _written, _joined])
def test_nothing_is_one_part(fn: Callable[..., Any], order: tuple[int, ...]) -> None:
    f = anyshape.compile(fn, backend="aot_eager", fullgraph=True)
    grad = fn is not _written
    for n in order:
        assert difference(fn, f, (torch.randn(n, 3, requires_grad=grad),), backward=grad) is None
    assert len(f.programs) == 1
    assert [p.text for p in f.programs[0].predicates] == ["((x.shape[0] + 1)//2) <= 1"]
    for n in (3, 4):
        assert difference(fn, f, (torch.randn(n, 3, requires_grad=grad),), backward=grad) is None
    assert len(f.programs) == 2
    assert f.fallbacks == {}


def test_gradients_pass_through() -> None:
    fn = lambda x: (x * 2).split(2)
    f = anyshape.compile(fn, backend="aot_eager")
    with expect_programs(1):
        for n in (5, 4, 1, 8):
            grads = []
            x = torch.randn(n, 3)
            for call in (f, fn):
                leaf = x.clone().requires_grad_()
                sum(part.sum() * (i + 1) for i, part in enumerate(call(leaf))).backward()
                grads.append(leaf.grad)
            torch.testing.assert_close(*grads)


def test_the_results_are_views_as_in_eager() -> None:
    f = anyshape.compile(lambda x: x.unbind(), backend="aot_eager")
    for n in (4, 2, 6):
        x = torch.zeros(n, 2)
        for row in f(x):
            row.add_(1)
        assert torch.equal(x, torch.ones(n, 2))


def test_eagers_own_error() -> None:
    fn = lambda x, k: x.split(k)
    f = anyshape.compile(fn, backend="aot_eager")
    assert difference(fn, f, (torch.randn(5), 2)) is None
    with pytest.raises(RuntimeError, match="split"):
        f(torch.randn(5), -1)
    assert difference(fn, f, (torch.randn(7), 3)) is None


def test_what_the_function_goes_on_with_stays_in_the_graph() -> None:
    """As many results as the function unpacks: the number is a predicate."""

    def fn(x: Tensor) -> Tensor:
        first, second = x.unbind()
        return first + second

    f = anyshape.compile(fn, backend="aot_eager", fullgraph=True)
    with expect_programs(1):
        for n in (3, 1, 0, 8):
            assert difference(fn, f, (torch.randn(2, n),)) is None


def test_under_no_grad() -> None:
    @torch.no_grad()
    def fn(x: Tensor) -> Any:
        return (x * 2).split(2)

    f = anyshape.compile(fn, backend="aot_eager")
    for n in (4, 5):
        x = torch.randn(n, requires_grad=True)
        assert difference(fn, f, (x,)) is None
        assert not any(part.requires_grad for part in f(x))
