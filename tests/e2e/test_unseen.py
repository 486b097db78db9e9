"""A copy that eager does not make at some sizes is no behavior of its own, unless it shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.admission import unobservable_strides
from anyshape.testing import difference, expect_programs


def heads(x: Tensor) -> Tensor:
    """A copy; for a batch of 1 a view with other strides."""
    batch, length, width = x.shape
    return x.view(batch, length, 2, width // 2).transpose(1, 2).reshape(batch * 2, length, width // 2)


def attention(q: Tensor, k: Tensor) -> Tensor:
    return torch.bmm(heads(q), heads(k).transpose(1, 2)).softmax(-1)


def attention_after_a_write(q: Tensor, k: Tensor) -> Tensor:
    q = q * 2
    q += 1
    return attention(q * 1.0, k)


def given_back(q: Tensor, k: Tensor) -> Tensor:
    return heads(q) + 1


def met(q: Tensor, k: Tensor) -> Tensor:
    """Each of the two is given the strides of the other, unless both differ."""
    return torch.bmm((heads(q) + heads(k)), heads(k).transpose(1, 2)), (heads(q) + heads(k))  # type: ignore[return-value]


def asked(q: Tensor, k: Tensor) -> Tensor:
    made = heads(q)
    return torch.bmm(made * 2 if made.is_contiguous() else made * 3, heads(k).transpose(1, 2))


def written(q: Tensor, k: Tensor) -> Tensor:
    made = heads(q)
    made.add_(1)
    return torch.bmm(made, heads(k).transpose(1, 2)) + q.sum()


SIZES = [(2, 5), (3, 4), (1, 5)]


def calls(sizes: list[tuple[int, int]]) -> list[tuple[Any, ...]]:
    return [(torch.randn(b, n, 8), torch.randn(b, n, 8)) for b, n in sizes]


@pytest.mark.parametrize("fn", [attention, attention_after_a_write])
@pytest.mark.parametrize("first", [0, 2])
def test_one_program_where_it_does_not_show(fn: Callable[..., Tensor], first: int) -> None:
    f = anyshape.compile(fn, backend="aot_eager", fullgraph=True)
    with expect_programs(1, f):
        for arguments in calls(SIZES[first:] + SIZES[:first]):
            assert difference(fn, f, arguments, backward=fn is attention) is None
    assert f.fallbacks == {}


@pytest.mark.filterwarnings("ignore::anyshape.FallbackWarning")  # a written copy that is a view at other sizes
@pytest.mark.parametrize("fn", [given_back, met, asked, written])
def test_eagers_result_where_it_shows(fn: Callable[..., Tensor]) -> None:
    f = anyshape.compile(fn, backend="aot_eager")
    for arguments in calls(SIZES):
        assert difference(fn, f, arguments) is None


def test_it_is_told_for_all_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    f = anyshape.compile(attention, backend="aot_eager")
    for arguments in calls([(2, 5), (1, 5)]):
        f(*arguments)
    monkeypatch.setattr(unobservable_strides, "holds", lambda *args: pytest.fail("it is run again"))
    for arguments in calls([(1, 6), (1, 11)]):
        f(*arguments)
    assert len(f.programs) == 1
