"""Sizes that contradict nothing that is known."""

from __future__ import annotations

import types
from typing import Any

import pytest
import sympy
from torch.utils._sympy.functions import FloorDiv, Mod
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from anyshape._torch.possible_sizes import leave_open, possible_sizes

n, m = sympy.symbols("n m", integer=True, nonnegative=True)
u = sympy.Symbol("u", integer=True)


def known(*facts: sympy.Basic, least: int = 0, most: Any = int_oo, **state: Any) -> list[Any]:
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
    return possible_sizes(env)


@pytest.mark.parametrize("asked", [n > 1, sympy.Eq(n * m, 0), sympy.Eq(n, m), n <= 128, sympy.Ne(Mod(n, 2), 0), n * m])
def test_open_where_nothing_is_known(asked: sympy.Basic) -> None:
    assert leave_open(known(), asked)


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
        ({"facts": [u > n]}, [n > 1]),  # of a size born from data nothing is told
        ({}, [n >= 0, sympy.Eq(FloorDiv(n, n), 1)]),  # 0 // 0 has no value
    ],
)
def test_what_is_known_is_never_open(state: dict[str, Any], asked: list[sympy.Basic]) -> None:
    possible = known(*state.pop("facts", ()), **state)
    assert not any(leave_open(possible, expr) for expr in asked)


def test_what_facts_leave_open() -> None:
    assert leave_open(known(n > 4), n > 5)
    assert leave_open(known(replacements={m: n}, least=2), n > 2)
