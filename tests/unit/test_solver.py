"""The solver: contradictions, implication, hints, coverage; each against brute force, with z3 and without."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anyshape.declaration import Declaration, intervals, solver
from anyshape.declaration.place import in_clause
from anyshape.declaration.reading import read_clause
from anyshape.errors import DeclarationError, MissingDependencyError


def clauses(*texts):
    return tuple(read_clause(in_clause("where", i, t)) for i, t in enumerate(texts))


@pytest.fixture
def without_z3(monkeypatch):
    monkeypatch.setattr(solver, "_z3", lambda: None)


# -- contradictions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "core"),
    [
        (["n > 8", "m > 2", "n < 4"], {"n > 8", "n < 4"}),
        (["n < m", "m < k", "k < n", "n < 100"], {"n < m", "m < k", "k < n"}),
        (["n % 4 == 1", "n > 3", "n % 8 == 0"], {"n % 4 == 1", "n % 8 == 0"}),
        # Leaving clauses out one by one ends at the first three; two are enough.
        (["n < m", "m < k", "k < n", "n < 3", "n > 3"], {"n < 3", "n > 3"}),
        (["n < 0", "n > 8", "n < 4"], {"n < 0"}),
        (["n*n == 2"], {"n*n == 2"}),
        (["n > 8", "m < 4"], set()),
    ],
)
def test_the_smallest_conflict(texts, core):
    assert {c.text for c in solver.conflict(clauses(*texts))} == core


def test_derived_dims_take_part():
    with pytest.raises(DeclarationError) as caught:
        Declaration.parse({"x": "n-4"}, ["n < 3", "n != 1"])
    assert caught.value.code == "AS012"
    assert 'shapes["x"]' in str(caught.value) and "n != 1" not in str(caught.value)


def test_simple_conflicts_are_found_without_z3(without_z3):
    for texts in (["n > 8", "n < 4"], ["n < 0"], ["2*n == 5"], ["n % 8 == 9"], ["n % 8 == 0", "n > 8", "n < 16"]):
        assert solver.conflict(clauses(*texts))
    assert solver.conflict(clauses("n < m", "m < n")) == ()  # not shown, so not claimed


# -- implication -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "predicate", "answer"),
    [
        (["n > 8"], "n > 8", True),
        (["n > 8"], "n >= 9", True),
        (["n > 8"], "n == 1", False),
        (["n > 8"], "n > 9", None),
        (["n % 16 == 0"], "n % 8 == 0", True),
        (["n % 16 == 0"], "n % 16 == 3", False),
        (["a < b", "b < c"], "a < c", True),
        (["a == 2*b"], "a % 2 == 0", True),
        (["a == b"], "a != b", False),
        ([], "n >= 0", True),
        ([], "n == 0", None),
        (["n >= 1"], "n*m % n == 0", True),
    ],
)
def test_implied(where, predicate, answer):
    assert solver.implied(where, predicate) is answer


def test_implied_without_z3(without_z3):
    assert solver.implied(["n > 8"], "n >= 9") is True
    assert solver.implied(["n > 8"], "n == 1") is False
    assert solver.implied(["n % 16 == 0"], "n % 8 == 0") is None


_TERM = st.sampled_from(["a", "b", "2*a", "a+b", "a-b", "a%3", "b//2", "a*b", "3", "5", "b+1"])
_CLAUSE = st.tuples(_TERM, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), _TERM).map(" ".join)
_BOX = [{"a": a, "b": b} for a, b in itertools.product(range(12), repeat=2)]


def _named(text):
    return "a" in text or "b" in text


@settings(max_examples=100, deadline=None)
@given(st.lists(_CLAUSE.filter(_named), min_size=1, max_size=3), _CLAUSE.filter(_named))
def test_against_brute_force(where, predicate):
    facts, claim = clauses(*where), clauses(predicate)[0]
    allowed = [s for s in _BOX if all(c.holds(s) for c in facts)]
    answers = {claim.holds(s) for s in allowed}
    implied = solver.implied(facts, claim)
    if True in answers and False in answers:
        assert implied is None
    elif implied is not None and answers:
        assert answers == {implied}
    core = solver.conflict(facts)
    assert not (core and allowed)
    if core:
        for left_out in core:
            assert not solver.conflict([c for c in core if c is not left_out])
    if intervals.refuted([c for f in facts for c in f.comparisons]):
        assert not allowed


# -- hints -----------------------------------------------------------------------------------------------------


def check_hints(declaration, assertions=()):
    hints = solver.solve_hints(declaration, assertions)
    assert set(declaration.names) <= set(hints)
    assert all(v >= 0 for v in hints.values())
    assert all(c.holds(hints) for c in (*declaration.invariants, *clauses(*assertions)))
    return hints


@pytest.mark.parametrize("z3", [True, False])
@pytest.mark.parametrize(
    ("shape", "where", "assertions"),
    [
        ("batch seq 512", [], []),
        ("batch seq", ["1 <= batch <= 64", "seq % 8 == 0"], ["seq > batch"]),
        ("batch seq", ["seq % 24 == 0", "seq > 100"], []),
        ("n", ["n == 1"], []),
        ("n", ["n < 1"], []),
        ("n m", ["n == 2*m", "m > 3"], []),
        ("n-7", [], ["n != 64"]),
    ],
)
def test_hints_satisfy_everything(z3, shape, where, assertions, monkeypatch):
    declaration = Declaration.parse({"x": shape}, where)
    if not z3:
        monkeypatch.setattr(solver, "_z3", lambda: None)
    check_hints(declaration, assertions)


def test_hints_are_typical_and_differ():
    hints = check_hints(Declaration.parse({"x": "batch seq heads 64"}))
    assert len({*hints.values(), 64}) == 4
    assert all(v >= 2 for v in hints.values())


def test_given_hints_are_kept():
    declaration = Declaration.parse({"x": "batch seq"}, ["batch < seq"], hints={"seq": 1024})
    assert check_hints(declaration)["seq"] == 1024
    assert check_hints(declaration, ["seq < 100"])["seq"] < 100
    assert check_hints(declaration, ["seq % 3 == 0"])["seq"] % 3 == 0


def test_a_name_of_the_program_is_solved_too():
    hints = check_hints(Declaration.parse({"x": "batch"}), ["batch == 2*u0+1"])
    assert hints["batch"] == 2 * hints["u0"] + 1


def test_several_hints():
    declaration = Declaration.parse({"x": "batch seq"}, ["batch <= seq"], hints={"seq": [128, 1024, 8192]})
    sets = solver.solve_hint_sets(declaration)
    assert [s["seq"] for s in sets] == [128, 1024, 8192]
    assert all(s["batch"] <= s["seq"] for s in sets)


def test_no_hints_satisfy():
    with pytest.raises(DeclarationError, match="no sizes satisfy the invariants") as caught:
        solver.solve_hints(Declaration.parse({"x": "n m"}, ["n > 8"]), ["n < m", "m < 4"])
    assert '"n > 8"' in str(caught.value)


# -- coverage --------------------------------------------------------------------------------------------------


def test_uncovered():
    assert solver.uncovered(["1 <= n <= 64"], ["n < 8", "n >= 8"]) is None
    assert solver.uncovered(["1 <= n <= 64"], ["n < 8", "n > 8"]) == {"n": 8}
    assert solver.uncovered(["1 <= n <= 64"], ["n != 37"]) == {"n": 37}
    assert solver.uncovered(["n % 8 == 0"], ["n % 16 == 0", "n % 16 == 8"]) is None
    assert solver.uncovered(["a < b"], ["b > 0"]) is None
    assert solver.uncovered([], ["n > 0"]) == {"n": 0}
    assert solver.uncovered(["n > 3"], []) is not None


def test_a_proof_needs_z3(without_z3):
    assert solver.uncovered(["1 <= n <= 64"], ["n < 8", "n > 8"]) == {"n": 8}
    with pytest.raises(MissingDependencyError, match="z3-solver"):
        solver.uncovered(["1 <= n <= 64"], ["n < 8", "n >= 8"])


@pytest.mark.parametrize(
    ("where", "hints", "core"),
    [
        (["a == 2*b"], {"a": 5}, {"a == 2*b", "a == 5"}),
        (["a < b", "b < c"], {"a": 8, "c": 9}, {"a < b", "b < c", "a == 8", "c == 9"}),
        (["a % 8 == 0", "b > 3"], {"a": [8, 9]}, None),
    ],
)
def test_hints_that_cannot_be(where, hints, core):
    with pytest.raises(DeclarationError) as caught:
        Declaration.parse({"x": "a b c"}, where, hints=hints)
    assert caught.value.code == "AS012"
    for text in core or ():
        assert f'"{text}"' in caught.value.where
    fixed = {**hints, **eval(f"dict({caught.value.fix})")["hints"]}
    Declaration.parse({"x": "a b c"}, where, hints=fixed)
