"""What Python insists on in arithmetic, and what kernels hold.

Owns what a number that the function computes insists on. A divisor is not 0: an expression does not tell any more
(`(n * m) // m` is `n` to torch), and kernels end the process. An int stays within 64 bits, and within 53 where it is
divided to a float: kernels compute with no more. A tensor of ints is not divided by 0, and what is beyond the largest
float is an infinity to `torch.tensor` alone. Where that does not hold the call runs eagerly, which raises, catches
or computes as Python does.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import sympy
import torch

from anyshape._torch import concrete
from anyshape.answers import name_of

_DIVISIONS = (operator.floordiv, operator.mod, operator.truediv)
_OF_TENSORS = {"div", "divide", "floor_divide", "floordiv", "remainder", "mod", "fmod", "div_", "floor_divide_"}
_NEW = torch._refs.tensor  # what Dynamo makes of `torch.tensor`
_LARGEST = torch.finfo(torch.float32).max
_COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
_GROWING = (operator.mul, operator.pow, operator.lshift)
_BITS = 63
_BITS_OF_DOUBLES = 53


def require(call: Any, args: Sequence[Any]) -> None:
    """Have a division of the function insist on what Python insists on."""
    if call is _NEW:
        for number in concrete.leaves(args[:1]):
            _require_a_float(number)
        return
    if args and isinstance(args[0], torch.Tensor):
        if name_of(call) in _OF_TENSORS and not args[0].is_floating_point() and isinstance(args[1], torch.SymInt):
            torch._check(args[1] != 0, lambda: "ZeroDivisionError")
        return
    if call in _COMPARISONS:
        _note_compared(args)
    if call not in _DIVISIONS:
        return
    if isinstance(args[1], (torch.SymInt, torch.SymFloat)):
        torch._check(args[1] != 0, lambda: "integer division or modulo by zero")
    for number in args if call is operator.truediv else ():
        _require_within(number, _BITS_OF_DOUBLES)


def _note_compared(args: Sequence[Any]) -> None:
    """What floats are compared: `a == a` is no question to sympy, and nan is another answer."""
    for number in args:
        if isinstance(number, torch.SymFloat):
            env = number.node.shape_env
            env.recording.compared |= concrete.number_expr(number).free_symbols & env.recording.symbols.keys()


def _require_a_float(number: Any) -> None:
    if isinstance(number, torch.SymFloat):
        env, expr = number.node.shape_env, concrete.number_expr(number)
        fits = not env.recording.owns(expr) or env.holds(sympy.Le(sympy.Abs(expr), sympy.Float(_LARGEST)))
    else:
        fits = type(number) is not float or not math.isfinite(number) or abs(number) <= _LARGEST
    if not fits:
        raise OverflowError("a tensor is made of a float beyond the largest")


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
