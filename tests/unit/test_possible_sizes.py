"""Sizes that contradict nothing that is known."""

from __future__ import annotations

import types
from typing import Any
from unittest import mock

import pytest
import sympy
from torch.utils._sympy.functions import FloorDiv, Mod
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from anyshape._torch.symbolic import possible_sizes
from anyshape._torch.symbolic.possible_sizes import PossibleSizes

n, m = sympy.symbols("n m", integer=True, nonnegative=True)
u = sympy.Symbol("u", integer=True)


def known(*facts: sympy.Basic, least: int = 0, most: Any = int_oo, **state: Any) -> PossibleSizes:
    """What is possible where sizes of 6 and 12 were captured."""
    bounds = ValueRanges(sympy.Integer(least), most)
    env = types.SimpleNamespace(
        recording=types.SimpleNamespace(hints={n: sympy.Integer(6), m: sympy.Integer(12)}),
        var_to_range={n: bounds, m: bounds},
        axioms=dict.fromkeys(facts, sympy.true) | {sympy.Not(f): sympy.false for f in facts},
        replacements=state.get("replacements", {}),
        baked=state.get("baked", {}),
        divisible=state.get("divisible", set()),
    )
    possible = PossibleSizes(env)
    possible.grow()
    return possible


@pytest.mark.parametrize("asked", [n > 1, sympy.Eq(n * m, 0), sympy.Eq(n, m), n <= 128, sympy.Ne(Mod(n, 2), 0), n * m])
def test_open_where_nothing_is_known(asked: sympy.Basic) -> None:
    assert known().leave_open(asked)


@pytest.mark.parametrize(
    ("state", "asked"),
    [
        ({"least": 2}, [n > 1, sympy.Ne(n * m, 1), n * m >= 4]),
        ({"least": 2, "most": sympy.Integer(64)}, [n <= 64, n * m < 5_000]),
        ({"facts": [n > 4]}, [n > 4, n > 3, sympy.Ne(n, 0)]),
        ({"facts": [sympy.Eq(Mod(n, 3), 0)]}, [sympy.Eq(Mod(n, 3), 0)]),
        ({"divisible": {Mod(m, 4)}}, [sympy.Eq(Mod(m, 4), 0)]),
        ({"replacements": {m: 2 * n}}, [sympy.Eq(m, 2 * n), m >= n]),
        ({"baked": {n * m: sympy.Integer(72)}}, [sympy.Eq(n * m, 72)]),
        ({"facts": [u > n]}, [n > 1]),  # of an unbacked size nothing is told
        ({}, [n >= 0, sympy.Eq(FloorDiv(n, n), 1)]),  # 0 // 0 has no value
    ],
)
def test_what_is_known_is_never_open(state: dict[str, Any], asked: list[sympy.Basic]) -> None:
    possible = known(*state.pop("facts", ()), **state)
    assert not any(possible.leave_open(expr) for expr in asked)


def test_what_facts_leave_open() -> None:
    assert known(n > 4).leave_open(n > 5)
    assert known(replacements={m: n}, least=2).leave_open(n > 2)


def test_what_is_learnt_later_is_looked_at_under_what_stands_for_a_size() -> None:
    possible = known(n > 4)
    env = possible._env
    assert possible.leave_open(m > 4)
    env.replacements[m] = n
    possible.grow()
    assert not possible.leave_open(m > 4)
    env.replacements[n] = u - 1
    possible.grow()
    assert not possible.leave_open(m > 4)  # of an unbacked size nothing is told


def test_a_question_costs_the_same_whatever_else_is_known() -> None:
    """Each size has a fact of its own, and half of them stand for others."""
    sizes = sympy.symbols("s:200", integer=True, nonnegative=True)
    possible, counted = known(), []
    env = possible._env
    for i, size in enumerate(sizes):
        env.recording.hints[size] = sympy.Integer(6)
        env.var_to_range[size] = env.var_to_range[n]
        env.axioms[size > 1] = sympy.true
        if i % 2:
            env.replacements[size] = sizes[0]
        possible.grow()
        with mock.patch.object(possible_sizes, "_value", wraps=possible_sizes._value) as asked:
            assert possible.leave_open(size > 6)
            assert not possible.leave_open(size > 1)
        counted.append(asked.call_count)
    assert max(counted) <= 2 * counted[0], counted
