"""Scalar arguments that stay constants of a program: -0.0, infinities, nan, ints beyond 2**53.

Owns -0.0, infinities and nan (sympy has no -0.0, and a nan answers no question), and ints beyond 2**53, with which
kernels compute otherwise than Python: in 64 bits, and to a double. Such an argument is a constant of the program that
is captured for it. A program that asked nothing about a float takes it whatever it is.
"""

from __future__ import annotations

import math

_MOST = 1 << 53


def is_expressible(number: float) -> bool:
    """Whether an expression of this number means what Python means."""
    if isinstance(number, int):
        return -_MOST <= number <= _MOST
    return math.isfinite(number) and (number != 0 or math.copysign(1.0, number) > 0)


def same(number: float, as_this: float) -> bool:
    """Whether a number is this one, its sign included."""
    return number == as_this and math.copysign(1.0, number) == math.copysign(1.0, as_this)
