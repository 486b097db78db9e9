"""Bounds of sizes, by propagation.

Owns the reasoning that needs no solver: enough for ranges, and a fallback where z3 is not installed. It refutes soundly
and not completely, except where `exact` says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from anyshape.declaration.expression import Comparison, Expression, Name, Number, Operation, linear_in, names, operation

Interval = tuple[float, float]
_ROUNDS = 64


def exact(comparisons: Sequence[Comparison]) -> bool:
    """Whether propagation decides these: each bounds one name, linearly."""
    for c in comparisons:
        if len(c.names) != 1 or c.op == "!=" or linear_in(operation("-", c.left, c.right), c.names[0]) is None:
            return False
    return True


def refuted(comparisons: Sequence[Comparison]) -> bool:
    """Whether no sizes can make all of them hold, as far as bounds tell."""
    box: dict[str, Interval] = {n: (0, math.inf) for c in comparisons for n in c.names}
    for _ in range(_ROUNDS):
        before = dict(box)
        for c in comparisons:
            if not _narrow(c, box) or any(low > high for low, high in box.values()):
                return True
        if box == before:
            break
    return False


def bounds(expr: Expression, box: dict[str, Interval]) -> Interval:
    """The least and the greatest value it can have within the box."""
    if isinstance(expr, Number):
        return expr.value, expr.value
    if isinstance(expr, Name):
        return box[expr.name]
    (a, b), (c, d) = bounds(expr.left, box), bounds(expr.right, box)
    if expr.op == "+":
        return a + c, b + d
    if expr.op == "-":
        return a - d, b - c
    if expr.op == "*":
        corners = [_times(x, y) for x in (a, b) for y in (c, d)]
        return min(corners), max(corners)
    if d < 1:
        return -math.inf, math.inf
    c = max(c, 1)
    if expr.op == "%":
        return 0, min(b, d - 1) if a >= 0 else d - 1
    corners = [_floor_div(x, y) for x in (a, b) for y in (c, d)]
    return min(corners), max(corners)


def _times(x: float, y: float) -> float:
    return 0 if x == 0 or y == 0 else x * y


def _floor_div(x: float, y: float) -> float:
    if math.isinf(x):
        return x if not math.isinf(y) else (0 if x > 0 else -1)
    if math.isinf(y):
        return 0 if x >= 0 else -1
    return x // y


def _narrow(c: Comparison, box: dict[str, Interval]) -> bool:
    """Narrow the box to what the comparison allows; False when it allows nothing."""
    difference = operation("-", c.left, c.right)
    low, high = bounds(difference, box)
    if c.op == "==":
        certain = low <= 0 <= high
    elif c.op == "!=":
        certain = not (low == high == 0)
    elif c.op in ("<", "<="):
        certain = low < 0 or (c.op == "<=" and low == 0)
    else:
        certain = high > 0 or (c.op == ">=" and high == 0)
    if not certain:
        return False
    if c.op == "!=":
        return True
    strict = c.op in ("<", ">")
    for name in names(difference):
        form = linear_in(difference, name)
        if form is None or form[0] == 0:
            continue
        factor, rest = form
        rest_low, rest_high = bounds(rest, box)
        if c.op in ("<", "<=", "=="):  # factor * name <= -rest
            _cut(box, name, factor, -rest_low - strict, upper=True)
        if c.op in (">", ">=", "=="):
            _cut(box, name, factor, -rest_high + strict, upper=False)
    _round_to_multiple(c, box)
    return True


def _cut(box: dict[str, Interval], name: str, factor: int, limit: float, *, upper: bool) -> None:
    """Apply `factor * name <= limit` (or `>=`)."""
    if math.isinf(limit) or math.isnan(limit):
        return
    low, high = box[name]
    whole = int(limit)
    if (factor > 0) == upper:
        box[name] = low, min(high, whole // factor)
    else:
        box[name] = max(low, -(-whole // factor)), high


def _round_to_multiple(c: Comparison, box: dict[str, Interval]) -> None:
    """`n % 8 == 0` moves the bounds of n to multiples of 8."""
    for left, right in ((c.left, c.right), (c.right, c.left)):
        if not (c.op == "==" and isinstance(right, Number) and isinstance(left, Operation) and left.op == "%"):
            continue
        if isinstance(left.left, Name) and isinstance(left.right, Number):
            low, high = box[left.left.name]
            step, remainder = left.right.value, right.value
            low = low + (remainder - low) % step
            high = high if math.isinf(high) else high - (high - remainder) % step
            box[left.left.name] = low, high
