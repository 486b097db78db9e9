"""The checks that users get: they pass what is right, and say what is wrong and where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape
from anyshape import compiler
from anyshape.testing import assert_any_shape, difference, expect_programs


def branch(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 8:
        return x + 1
    return x * 2


def stands_in(other: Callable[..., Any]) -> Callable[..., Any]:
    """A compiler that gives back something else than it was given."""
    return lambda fn: other


# -- expect_programs -------------------------------------------------------------------------------------------


def test_one_program_for_many_sizes() -> None:
    f = anyshape.compile(lambda x: x.relu() + 1, backend="eager")
    with expect_programs(1) as seen:
        for n in (5, 7, 1, 0):
            f(torch.ones(n, 3))
    assert len(seen) == 1 and seen.programs[0].predicates == ()


def test_none_where_all_is_known() -> None:
    f = anyshape.compile(lambda x: x + 1, backend="eager")
    f(torch.ones(4))
    with expect_programs(0):
        f(torch.ones(9))


def test_failure_lists_programs_and_predicates() -> None:
    f = anyshape.compile(branch, backend="eager")
    with pytest.raises(AssertionError) as caught:
        with expect_programs(1):
            f(torch.ones(4))
            f(torch.ones(12))
    text = str(caught.value)
    assert text.startswith("expected 1 programs, 2 were compiled\n  1. branch (")
    assert "x.shape[0] <= 8    asked by your code at" in text and "x.shape[0] > 8    asked by your code at" in text


def test_too_few_fails_unless_at_most() -> None:
    with pytest.raises(AssertionError, match="expected 2 programs, 0 were compiled"):
        with expect_programs(2):
            pass
    with expect_programs(2, at_most=True):
        pass


def test_only_the_functions_given() -> None:
    f, g = anyshape.compile(branch, backend="eager"), anyshape.compile(lambda x: x - 1, backend="eager")
    with expect_programs(1, g):
        f(torch.ones(4))
        g(torch.ones(4))


def test_observer_is_gone_afterwards() -> None:
    before = list(compiler.observers)
    with pytest.raises(KeyError):
        with expect_programs(3):
            raise KeyError
    assert compiler.observers == before


# -- assert_any_shape ------------------------------------------------------------------------------------------


def test_right_function_passes_and_is_returned() -> None:
    f = assert_any_shape(
        torch.nn.functional.relu, lambda n: torch.randn(n, 4), layouts=["contiguous"], max_programs=1, backend="eager"
    )
    assert len(f.programs) == 1


def test_several_sizes_mutation_views_and_errors() -> None:
    def act(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.add_(1)
        return x.transpose(0, 1), torch.cat([x, y])

    sizes = [(2, 3, 3), (4, 5, 5), (1, 3, 3), (0, 2, 2), (2, 3, 4)]  # the last is refused by eager
    assert_any_shape(act, lambda n, k, m: (torch.zeros(n, k), torch.ones(2, m)), sizes=sizes, backend="aot_eager")


def test_too_many_programs() -> None:
    with pytest.raises(AssertionError, match="expected at most 1 programs, 2 were compiled"):
        assert_any_shape(branch, torch.ones, sizes=(3, 12), layouts=["contiguous"], max_programs=1, backend="eager")


WRONG: list[tuple[str, Callable[..., Any], Callable[..., Any], str]] = [
    ("values", lambda x: x + 1, lambda x: x + 2, "values:"),
    ("shape", lambda x: x, lambda x: x.unsqueeze(0), r"shape \(1, 2, 3\), in eager \(2, 3\)"),
    ("dtype", lambda x: x + 0, lambda x: (x + 0).double(), "torch.float64, in eager torch.float32"),
    ("strides", lambda x: x * 1, lambda x: (x * 1).mT.contiguous().mT, r"strides \(1, 2\), in eager \(3, 1\)"),
    ("mutation", lambda x: x.add_(1).sum(), lambda x: (x + 1).sum(), "input: values:"),
    ("aliasing", lambda x: x.view(-1), lambda x: x.reshape(-1).clone(), r"as \[None\], in eager as \[0\]"),
    ("structure", lambda x: (x, x), lambda x: [x, x], "structure"),
    ("number", lambda x: x.shape[0], lambda x: 7, "7, in eager 2"),
    ("missing error", lambda x: x.view(7, 7), lambda x: x, "eager raised RuntimeError .*, compiled returned"),
    ("other error", lambda x: x.view(7, 7), lambda x: {}[x], "eager raised RuntimeError .*, compiled raised KeyError"),
]


@pytest.mark.parametrize(("right", "wrong", "text"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_each_kind_of_difference_is_seen(right: Any, wrong: Any, text: str) -> None:
    with pytest.raises(AssertionError, match=text):
        assert_any_shape(right, lambda n: torch.ones(n, 3), sizes=[2], layouts=["contiguous"], compile=stands_in(wrong))


def test_smallest_failing_size_comes_first() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_any_shape(
            branch, torch.zeros, sizes=(30, 3, 12, 40), compile=stands_in(lambda x: x * 2), layouts=["contiguous"]
        )
    lines = str(caught.value).splitlines()
    assert lines[0] == "3 of 4 calls differ from eager; the smallest is at sizes (12,), contiguous:"
    assert lines[2].startswith("  also at (30,), contiguous: result: values:")


def test_layouts_have_the_same_values() -> None:
    seen: list[torch.Tensor] = []

    def keep(x: torch.Tensor) -> torch.Tensor:
        seen.append(x)
        return x

    start = torch.arange(6.0).view(2, 3)
    assert_any_shape(keep, lambda n: start, sizes=[2], compile=stands_in(keep))
    assert {x.stride() for x in seen} == {(3, 1), (1, 2), (7, 2)}
    assert all(torch.equal(x, start) for x in seen)


def test_unknown_layout() -> None:
    with pytest.raises(ValueError, match="layout 'diagonal' is not one of contiguous, transposed, sliced"):
        assert_any_shape(branch, torch.ones, layouts=["diagonal"], backend="eager")


def test_arguments_that_are_equal_to_themselves_alone() -> None:
    fn = lambda x, distance: distance(x, x + 1)
    arguments = (torch.ones(2, 3), torch.nn.PairwiseDistance())
    assert difference(fn, fn, arguments) is None
    assert difference(fn, lambda x, distance: distance(x, x), arguments) is not None
