"""Divisions that the ranges of loops settle: the same number at every place of every loop, and gone where they can be."""

from __future__ import annotations

import itertools

import pytest
import sympy
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from anyshape._torch.repairs.inductor.index_divisions import divided

x, y, z = sympy.symbols("x y z", integer=True, nonnegative=True)
n, m = sympy.symbols("n m", integer=True, nonnegative=True)
other = sympy.Symbol("other", integer=True)
RANGES = {x: sympy.Integer(4), y: n, z: m}

SETTLED = {
    FloorDiv(x + 4 * y, 4): y,
    FloorDiv(x + 4 * y + 4 * n * z, 4 * n): z,
    ModularIndexing(x + 4 * y + 4 * n * z, 4, n): y,
    ModularIndexing(x + 4 * y, 1, 4): x,
    ModularIndexing(x + 4 * y + 4 * n * z, 4 * n, m): z,
    FloorDiv(y + n * z, n) * 8 + ModularIndexing(y + n * z, 1, n): y + 8 * z,
    FloorDiv(x + 4 * other, 4): other,
}
KEPT = [
    FloorDiv(x + 3 * y, 3),  # x runs to 4
    FloorDiv(x + n * y, n),  # n may be less than 4
    FloorDiv(y + m * z, m),  # nothing is known of n and m
    FloorDiv(x - y, 4),
    FloorDiv(x + other, 4),
    ModularIndexing(y + n * z, n, n),  # z runs to m
    FloorDiv(n * m, 4),
]


def same(a: sympy.Expr, b: sympy.Expr) -> None:
    for sizes in itertools.product((1, 2, 3, 5), repeat=2):
        known = dict(zip((n, m), sizes, strict=True))
        lengths = (int(RANGES[v].xreplace(known)) for v in (x, y, z))
        for place in itertools.product(*map(range, lengths)):
            values = {**known, **dict(zip((x, y, z), place, strict=True)), other: -7}
            numbers = {s: sympy.Integer(v) for s, v in values.items()}
            assert a.xreplace(numbers) == b.xreplace(numbers), values


@pytest.mark.parametrize("expr", SETTLED, ids=str)
def test_what_ranges_settle(expr: sympy.Expr) -> None:
    assert divided(expr, RANGES, {n, m}) == SETTLED[expr]
    same(expr, SETTLED[expr])


@pytest.mark.parametrize("expr", KEPT, ids=str)
def test_what_they_do_not(expr: sympy.Expr) -> None:
    kept = divided(expr, RANGES, {n, m})
    assert kept.has(FloorDiv, ModularIndexing)
    same(expr, kept)


def test_a_size_that_may_be_zero_settles_nothing() -> None:
    expr = FloorDiv(x + 4 * n * z, 4 * n)
    assert divided(expr, RANGES, {n, m}) == z
    assert divided(expr, RANGES, {m}) == expr
