"""Conditions on the sizes of a call as plain data, for the manifest of an exported package.

Owns the form in which a package of exported programs keeps what each of them needs: nested lists of numbers, places and
operators, which are written as JSON and evaluated without running anything from the file. Knows nothing of torch.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import sympy

from anyshape.declaration.algebra import DIVISIONS, RELATIONS
from anyshape.declaration.expression import COMPARISONS
from anyshape.errors import ExportError

_OPERATORS: Mapping[str, Callable[..., Any]] = {
    **COMPARISONS,
    "+": lambda *parts: sum(parts),
    "*": lambda *parts: functools.reduce(operator.mul, parts),
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "max": max,
    "min": min,
    "and": lambda *parts: all(parts),
    "or": lambda *parts: any(parts),
    "not": operator.not_,
}
_CLASSES = {
    **RELATIONS,
    **DIVISIONS,
    "Add": "+",
    "Mul": "*",
    "Pow": "**",
    "PowByNatural": "**",
    "Max": "max",
    "Min": "min",
    "And": "and",
    "Or": "or",
    "Not": "not",
}


def from_sympy(expr: sympy.Basic, places: Mapping[sympy.Basic, tuple[int, int]]) -> Any:
    """An expression over sizes; `places` tells of each symbol the argument and the dim."""
    if expr in places:
        return ["size", *places[expr]]
    if isinstance(expr, sympy.Integer):
        return int(expr)
    name = _CLASSES.get(type(expr).__name__)
    if name is None:
        raise ExportError("a condition on sizes that a package cannot hold", value=expr, fix='behaviors="one"')
    return [name, *(from_sympy(a, places) for a in expr.args)]


def check(tree: Any) -> None:
    """Raise a ValueError where `tree` is not what `from_sympy` makes."""
    if type(tree) is int:
        return
    if not isinstance(tree, list) or not tree:
        raise ValueError(f"not a condition: {tree!r}")
    if tree[0] == "size":
        if len(tree) != 3 or not all(type(n) is int and n >= 0 for n in tree[1:]):
            raise ValueError(f"not a size: {tree!r}")
        return
    if tree[0] not in _OPERATORS or len(tree) < 2:
        raise ValueError(f"not an operator: {tree[0]!r}")
    for part in tree[1:]:
        check(part)


def evaluate(tree: Any, sizes: Callable[[int, int], int]) -> Any:
    """Its value at these sizes."""
    if not isinstance(tree, list):
        return tree
    if tree[0] == "size":
        return sizes(tree[1], tree[2])
    return _OPERATORS[tree[0]](*(evaluate(part, sizes) for part in tree[1:]))


def holds(tree: Any, sizes: Callable[[int, int], int]) -> bool:
    """Whether it holds; a condition that divides by a size of 0, or is about a size that is not there, does not."""
    try:
        return bool(evaluate(tree, sizes))
    except (ZeroDivisionError, IndexError):
        return False
