"""Assumptions of programs: sizes that break them, and what has to become of the call."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from anyshape._torch.symbolic.shape_env import FreeShapeEnv
from anyshape.admission.admission import Admission
from anyshape.fuzz import assumptions
from anyshape.fuzz.case import Call, Case, Input, Step

BRANCH = Case(
    inputs=(Input("x0", ("a", "b"), "float32"), Input("n", ("b",), "number")),
    steps=(Step("if_greater", "v0", ("x0",), (("dim", 0), ("k", 4))), Step("matmul", "v1", ("v0", "v0"))),
    results=("v1",),
    calls=(Call((("a", 6), ("b", 6)), ("contiguous", "contiguous")),),
)


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("x0.shape[0] > 4", lambda a, b: not a > 4),
        ("x0.shape[0] == x0.shape[1]", lambda a, b: a != b),
        ("(x0.shape[0] % 2 == 0) and (n >= 1)", lambda a, b: not (a % 2 == 0 and b >= 1)),
        ("not (Max(1, x0.shape[0]) == 1)", lambda a, b: max(1, a) == 1),
        ("ToFloat(x0.shape[0]**2) - 1.0 <= 0.0", lambda a, b: a**2 - 1 > 0),
        ("x0.shape[1] // 2 != 3", lambda a, b: b // 2 == 3),
    ],
)
def test_z3_finds_sizes_that_break_it(text: str, broken: Any) -> None:
    sizes = assumptions.violating(BRANCH, text)
    assert sizes is not None and broken(sizes["a"], sizes["b"])


@pytest.mark.parametrize("text", ["x0.shape[0] >= 0", "y.shape[0] > 3", "x0.stride(0) == 2", "Strange(x0.shape[0])"])
def test_what_always_holds_or_is_not_about_dims_is_left_out(text: str) -> None:
    assert assumptions.violating(BRANCH, text) is None


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_assumptions_of_a_branch_and_a_product_are_checked(backend: str) -> None:
    checks = assumptions.check(BRANCH, backend)
    assert {"x0.shape[0] > 4"} <= {c.assumption for c in checks}
    assert {c.outcome for c in checks} <= {"raised", "dispatched"}


@pytest.mark.parametrize("through", ["export", pytest.param("precompile", marks=pytest.mark.slow)])
def test_assumptions_of_what_is_made_ahead_are_checked(through: str) -> None:
    checks = assumptions.check(BRANCH, "aot_eager", through)
    assert {"x0.shape[0] > 4"} <= {c.assumption for c in checks}
    assert {c.outcome for c in checks} <= {"raised", "right"}


def test_an_export_that_checks_nothing_is_seen(monkeypatch: Any) -> None:
    monkeypatch.setattr(assumptions.exports, "export", lambda fn, args, **options: lambda *given: fn(*args))
    alone = dataclasses.replace(BRANCH, steps=BRANCH.steps[:1], results=("v0",))
    checks = assumptions.check(alone, "aot_eager", "export")
    assert checks and not any(c.holds for c in checks)


def test_an_assumption_that_is_not_checked_is_seen(monkeypatch: Any) -> None:
    monkeypatch.setattr(Admission, "_judge", lambda self, key: True)
    alone = dataclasses.replace(BRANCH, steps=BRANCH.steps[:1], results=("v0",))
    checks = assumptions.check(alone, "aot_eager")
    assert checks and not any(c.holds for c in checks)


COUNTED = Case(
    inputs=(Input("x0", ("a",), "int64"), Input("x1", ("b", "a"), "float32")),
    steps=(Step("item_size", "v0", ("x0",)), Step("matmul", "v1", ("x1", "v0"))),
    results=("v1",),
    calls=(Call((("a", 3), ("b", 2)), ("contiguous", "contiguous")),),
)


@pytest.mark.parametrize("through", ["compile", "export"])
def test_what_is_assumed_of_numbers_out_of_the_data_is_checked(through: str) -> None:
    checks = assumptions.check(COUNTED, "aot_eager", through)
    assert {c.outcome for c in checks if c.assumption.startswith("data")} == {"raised"}


def test_numbers_that_are_taken_for_the_size_they_must_equal_are_seen(monkeypatch: Any) -> None:
    monkeypatch.delattr(FreeShapeEnv, "_set_replacement")
    assert not all(c.holds for c in assumptions.check(COUNTED, "aot_eager"))
