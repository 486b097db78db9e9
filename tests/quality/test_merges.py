"""Sides of a branch that compute the same are one program; a merge that is wrong is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from faults import MERGES
from merged_programs import FLAGS, OTHERS, SAME, alike, computes_another, expands, outcomes, reads_a_flag

import anyshape


def compiled(fn: Callable[..., Any], backend: str = "aot_eager") -> Any:
    return anyshape.compile(fn, backend=backend, fullgraph=True, specialize="never")


@pytest.fixture(autouse=True)
def _flags() -> Iterator[None]:
    yield
    FLAGS["is_up"] = False


@pytest.mark.parametrize(("fn", "programs"), SAME)
def test_sides_that_compute_the_same_are_one_program(fn: Callable[..., Any], programs: int) -> None:
    f = compiled(fn)
    assert alike(outcomes(f), outcomes(fn))
    assert f.fallbacks == {}
    assert len(f.programs) == programs, [p.behaviour for p in f.programs]
    assert f.programs[0].merges


def test_with_generated_code() -> None:
    f = compiled(expands, "inductor")
    assert alike(outcomes(f), outcomes(expands))
    assert len(f.programs) == 1


@pytest.mark.parametrize("fn", OTHERS)
def test_sides_that_differ_are_not(fn: Callable[..., Any]) -> None:
    f = compiled(fn)
    assert alike(outcomes(f), outcomes(fn))
    assert f.fallbacks == {}


def _flagged() -> bool:
    """What one side alone reads is looked at by the program that serves both."""
    f = compiled(reads_a_flag)
    before = alike(outcomes(f), outcomes(reads_a_flag))
    FLAGS["is_up"] = True
    return before and alike(outcomes(f), outcomes(reads_a_flag))


def test_what_one_side_reads_is_still_guarded() -> None:
    assert _flagged()


def test_both_lines_are_shown() -> None:
    f = compiled(expands)
    outcomes(f)
    text = str(anyshape.explain(f))
    assert "x.shape[0] == 1" in text
    assert "computes the same as x.shape[0] != 1" in text
    assert f.programs[0].merges[0].answered[0].line == f.programs[0].predicates[0].line


def test_another_computation_is_a_program_of_its_own() -> None:
    f = compiled(computes_another)
    outcomes(f)
    assert len(f.programs) == 2
    assert not any(p.merges for p in f.programs)


@pytest.mark.parametrize("name", MERGES)
def test_a_merge_that_is_wrong_is_found(name: str) -> None:
    with MERGES[name]():
        right = [alike(outcomes(compiled(fn)), outcomes(fn)) for fn in OTHERS]
        assert not (all(right) and _flagged())
