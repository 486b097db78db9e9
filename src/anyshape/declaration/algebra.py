"""Between declarations and sympy.

Owns both directions: clauses as sympy facts about given symbols, and questions that a compiler asked in sympy as
clauses over names. sympy is imported when it is needed; the division and remainder of the environment that asks are
handed in.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from anyshape.declaration.expression import (
    ARITHMETIC,
    Clause,
    Comparison,
    Expression,
    Name,
    Number,
    comparison_source,
    operation,
)

# Classes of sympy and of torch's own, by name: torch is not imported here.
RELATIONS = {
    "Equality": "==",
    "Unequality": "!=",
    "StrictLessThan": "<",
    "LessThan": "<=",
    "StrictGreaterThan": ">",
    "GreaterThan": ">=",
}
DIVISIONS = {"FloorDiv": "//", "CleanDiv": "//", "Mod": "%", "PythonMod": "%"}


def to_sympy(
    expr: Expression,
    symbols: Mapping[str, Any],
    *,
    floor_div: Callable[[Any, Any], Any] | None = None,
    mod: Callable[[Any, Any], Any] | None = None,
) -> Any:
    """The expression over these symbols; `floor_div` and `mod` make a division and a remainder (torch has its own)."""
    import sympy

    if isinstance(expr, Number):
        return sympy.Integer(expr.value)
    if isinstance(expr, Name):
        return symbols[expr.name]
    left = to_sympy(expr.left, symbols, floor_div=floor_div, mod=mod)
    right = to_sympy(expr.right, symbols, floor_div=floor_div, mod=mod)
    if expr.op == "//":
        return floor_div(left, right) if floor_div is not None else sympy.floor(left / right)
    if expr.op == "%":
        return mod(left, right) if mod is not None else sympy.Mod(left, right)
    return ARITHMETIC[expr.op](left, right)


def facts(
    clause: Clause,
    symbols: Mapping[str, Any],
    *,
    floor_div: Callable[[Any, Any], Any] | None = None,
    mod: Callable[[Any, Any], Any] | None = None,
) -> tuple[Any, ...]:
    """The comparisons of a clause as sympy relations."""
    import sympy

    relation = {"==": sympy.Eq, "!=": sympy.Ne, "<": sympy.Lt, "<=": sympy.Le, ">": sympy.Gt, ">=": sympy.Ge}
    read = functools.partial(to_sympy, symbols=symbols, floor_div=floor_div, mod=mod)
    return tuple(relation[c.op](read(c.left), read(c.right)) for c in clause.comparisons)


def from_sympy(fact: Any, names: Mapping[Any, str]) -> Clause | None:
    """A relation or a conjunction of them as a clause over names, or None where it says more than clauses can."""
    comparisons = _comparisons(fact, names)
    if not comparisons:
        return None
    return Clause(" and ".join(comparison_source(c) for c in comparisons), comparisons, "predicate")


def _comparisons(fact: Any, names: Mapping[Any, str]) -> tuple[Comparison, ...] | None:
    kind = type(fact).__name__
    if kind == "And":
        parts = [_comparisons(a, names) for a in fact.args]
        return None if None in parts else tuple(c for p in parts if p is not None for c in p)
    if kind == "Not":
        inner = _comparisons(fact.args[0], names)
        return (inner[0].negation,) if inner is not None and len(inner) == 1 else None
    if kind not in RELATIONS:
        return None
    left, right = _expression(fact.args[0], names), _expression(fact.args[1], names)
    return None if left is None or right is None else (Comparison(left, RELATIONS[kind], right),)


def _expression(expr: Any, names: Mapping[Any, str]) -> Expression | None:
    if expr in names:
        return Name(names[expr])
    if expr.is_Integer:
        return Number(int(expr))
    kind = type(expr).__name__
    if kind == "Pow" and expr.args[1].is_Integer and 0 < int(expr.args[1]) <= 4:
        base = _expression(expr.args[0], names)
        return None if base is None else functools.reduce(functools.partial(operation, "*"), [base] * int(expr.args[1]))
    if kind not in ("Add", "Mul", *DIVISIONS):
        return None
    parts = [_expression(a, names) for a in expr.args]
    known = [p for p in parts if p is not None]
    if len(known) < len(parts):
        return None
    if kind in DIVISIONS:
        # By a negative number Python and sympy differ, and clauses know no such division.
        if len(known) != 2 or (isinstance(known[1], Number) and known[1].value < 1):
            return None
        return operation(DIVISIONS[kind], known[0], known[1])
    return functools.reduce(functools.partial(operation, "+" if kind == "Add" else "*"), known)
