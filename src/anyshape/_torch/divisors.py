"""What Python insists on in arithmetic, and what kernels hold.

Owns what a number that the function computes insists on. A divisor is not 0: an expression does not tell any more
(`(n * m) // m` is `n` to torch), and kernels end the process. An int stays within 64 bits, and within 53 where it is
divided to a float: kernels compute with no more. Where that does not hold the call runs eagerly, which raises, catches
or computes as Python does.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import sympy
import torch

from anyshape._torch import concrete

_DIVISIONS = (operator.floordiv, operator.mod, operator.truediv)
_GROWING = (operator.mul, operator.pow, operator.lshift)
_BITS = 63
_BITS_OF_DOUBLES = 53


def require(call: Any, args: Sequence[Any]) -> None:
    """Have a division of the function insist on what Python insists on."""
    if call not in _DIVISIONS or isinstance(args[0], torch.Tensor):
        return
    if isinstance(args[1], (torch.SymInt, torch.SymFloat)):
        torch._check(args[1] != 0, lambda: "integer division or modulo by zero")
    for number in args if call is operator.truediv else ():
        _require_within(number, _BITS_OF_DOUBLES)


def require_of(call: Any, result: Any) -> None:
    """Have a product of the function be a number that kernels hold."""
    if call in _GROWING:
        _require_within(result, _BITS)


def _require_within(number: Any, bits: int) -> None:
    if not isinstance(number, torch.SymInt):
        return
    env, expr = number.node.shape_env, concrete.number_expr(number)
    if not env.recording.owns(expr) or env.recording.are_sizes(expr):
        return
    bounds = env.bound_sympy(expr)
    if bounds.lower >= -(1 << bits) and bounds.upper < (1 << bits):
        return
    most = sympy.Integer(1 << bits)
    if not all(env.holds(fact) for fact in (sympy.Lt(expr, most), sympy.Ge(expr, -most))):
        raise OverflowError(f"an int of the function has more than {bits} bits")
