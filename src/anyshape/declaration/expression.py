"""Sizes and clauses in words: `2*seq+1`, `1 <= batch <= 64 and seq % 8 == 0`.

Owns the expressions that dims and invariants are made of, and their evaluation. `reading` makes them from text; nothing
here knows of shapes, of a solver or of sympy.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}
COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
NEGATED: Final[Mapping[str, str]] = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclasses.dataclass(frozen=True)
class Number:
    value: int


@dataclasses.dataclass(frozen=True)
class Name:
    name: str


@dataclasses.dataclass(frozen=True)
class Operation:
    op: str
    left: Expression
    right: Expression


Expression: TypeAlias = Number | Name | Operation


@dataclasses.dataclass(frozen=True)
class Comparison:
    left: Expression
    op: str
    right: Expression

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(names(self.left) + names(self.right)))

    def holds(self, sizes: Mapping[str, int]) -> bool:
        return bool(COMPARISONS[self.op](evaluate(self.left, sizes), evaluate(self.right, sizes)))

    @property
    def negation(self) -> Comparison:
        return Comparison(self.left, NEGATED[self.op], self.right)


@dataclasses.dataclass(frozen=True)
class Clause:
    """Comparisons that all must hold, and the words of the user that they came from."""

    text: str
    comparisons: tuple[Comparison, ...]
    origin: str = "where"  # the option it was given in

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(n for c in self.comparisons for n in c.names))

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it holds for these sizes; one that divides by a size of 0 does not."""
        try:
            return all(c.holds(sizes) for c in self.comparisons)
        except ZeroDivisionError:
            return False

    def __str__(self) -> str:
        return self.text


def names(expr: Expression) -> tuple[str, ...]:
    """The names in it, in the order they are written, each once."""
    if isinstance(expr, Name):
        return (expr.name,)
    if isinstance(expr, Operation):
        return tuple(dict.fromkeys(names(expr.left) + names(expr.right)))
    return ()


def evaluate(expr: Expression, sizes: Mapping[str, Any]) -> Any:
    """Its value; sizes may be anything with arithmetic, torch's symbolic ints among them."""
    if isinstance(expr, Number):
        return expr.value
    if isinstance(expr, Name):
        return sizes[expr.name]
    return ARITHMETIC[expr.op](evaluate(expr.left, sizes), evaluate(expr.right, sizes))


def source(expr: Expression, variables: Mapping[str, str] | None = None) -> str:
    """Python source of it, each name replaced by its variable."""
    if isinstance(expr, Number):
        return str(expr.value) if expr.value >= 0 else f"({expr.value})"
    if isinstance(expr, Name):
        return variables[expr.name] if variables is not None else expr.name
    return f"({source(expr.left, variables)} {expr.op} {source(expr.right, variables)})"


def comparison_source(comparison: Comparison, variables: Mapping[str, str] | None = None) -> str:
    return f"{source(comparison.left, variables)} {comparison.op} {source(comparison.right, variables)}"


def operation(op: str, left: Expression, right: Expression) -> Expression:
    """An operation, folded where both sides are numbers."""
    if isinstance(left, Number) and isinstance(right, Number):
        return Number(ARITHMETIC[op](left.value, right.value))
    return Operation(op, left, right)


def linear_in(expr: Expression, name: str) -> tuple[int, Expression] | None:
    """`(a, rest)` with `expr == a * name + rest`, `rest` free of the name; None if it has no such form."""
    if name not in names(expr):
        return 0, expr
    if isinstance(expr, Name):
        return 1, Number(0)
    assert isinstance(expr, Operation)
    left, right = linear_in(expr.left, name), linear_in(expr.right, name)
    if left is None or right is None or expr.op in ("//", "%"):
        return None
    if expr.op == "*":
        if isinstance(expr.left, Number):
            return expr.left.value * right[0], operation("*", expr.left, right[1])
        if isinstance(expr.right, Number):
            return expr.right.value * left[0], operation("*", left[1], expr.right)
        return None
    return ARITHMETIC[expr.op](left[0], right[0]), operation(expr.op, left[1], right[1])


def divisors(expr: Expression) -> tuple[Expression, ...]:
    """What it divides by, numbers apart: each must be at least 1 for the expression to mean anything."""
    if not isinstance(expr, Operation):
        return ()
    own = (expr.right,) if expr.op in ("//", "%") and not isinstance(expr.right, Number) else ()
    return divisors(expr.left) + divisors(expr.right) + own


# Sizes to try an expression at: small, large, prime, and no two alike for neighbouring names.
_PROBES = (0, 1, 2, 3, 5, 8, 13, 64, 97, 1009, 4096, 65537, 1 << 31, (1 << 61) - 1, 1 << 62, 1 << 63)


def constant_value(expr: Expression) -> int | None:
    """The value of an expression that is the same whatever its sizes (`seq-seq`), or None."""
    if isinstance(expr, Number):
        return expr.value
    values: set[int] = set()
    variables = names(expr)
    for start in range(len(_PROBES)):
        sizes = {n: _PROBES[(start * (i + 1) + 5 * i) % len(_PROBES)] for i, n in enumerate(variables)}
        try:
            values.add(evaluate(expr, sizes))
        except ZeroDivisionError:
            continue
        if len(values) > 1:
            return None
    return values.pop() if values else None
