"""Checks of Python arithmetic in a graph: divisors other than 0, ints within 64 bits.

Owns what a number that the function computes insists on. A divisor is not 0: an expression does not tell any more
(`(n * m) // m` is `n` to torch), and kernels end the process. What something is shifted by is not negative, and what
`math.asin` and its like are given has a value. An int stays within 64 bits, also one that a kernel is given, and within
53 where it is divided to a float: kernels compute with no more. A tensor of ints is not divided by 0, and what is
beyond the largest float is an infinity to `torch.tensor` alone. Where that does not hold the call runs eagerly, which
raises, catches or computes as Python does.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import sympy
import torch

from anyshape._torch.fake_runs import concrete
from anyshape.assumptions.answers import name_of

_DIVISIONS = (operator.floordiv, operator.mod, operator.truediv)
_OF_TENSORS = {"div", "divide", "floor_divide", "floordiv", "remainder", "mod", "fmod", "div_", "floor_divide_"}
_NEW = torch._refs.tensor  # what Dynamo makes of `torch.tensor`
_LARGEST = torch.finfo(torch.float32).max
_COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
_INFINITY = math.nextafter(math.inf, 0)
# Of what Dynamo makes of functions of `math`: the least and the greatest number that Python takes.
_DOMAINS: dict[Any, tuple[float, float]] = {
    getattr(torch, f"_sym_{name}", None): domain
    for name, domain in {
        "sqrt": (0.0, _INFINITY),
        "log2": (5e-324, _INFINITY),
        "cos": (-_INFINITY, _INFINITY),
        "sin": (-_INFINITY, _INFINITY),
        "tan": (-_INFINITY, _INFINITY),
        "cosh": (-710.0, 710.0),
        "sinh": (-710.0, 710.0),
        "asin": (-1.0, 1.0),
        "acos": (-1.0, 1.0),
    }.items()
}
_SHIFTS = (operator.lshift, operator.rshift)
_GROWING = (operator.mul, operator.pow, operator.lshift)
_ROUNDED = (torch.sym_int, math.floor, math.ceil, math.trunc, int, round)
_BITS = 63
_BITS_OF_DOUBLES = 53


def require(call: Any, args: Sequence[Any]) -> None:
    """Have an operator of the function insist on what Python insists on."""
    _require_arguments(call, args)
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
    if call is operator.pow:
        _require_a_power(*args[:2])
    if call in _DOMAINS:
        _require_domain(args[0], *_DOMAINS[call])
    if call in _SHIFTS and isinstance(args[1], torch.SymInt):
        torch._check(args[1] >= 0, lambda: "negative shift count")
    if call not in _DIVISIONS:
        return
    if isinstance(args[1], (torch.SymInt, torch.SymFloat)):
        torch._check(args[1] != 0, lambda: "integer division or modulo by zero")
    for number in args if call is operator.truediv else ():
        _require_within(number, _BITS_OF_DOUBLES)


def _require_arguments(call: Any, args: Sequence[Any]) -> None:
    """No kernel takes an int beyond 64 bits; what calls it from Python may have made another of it."""
    if getattr(call, "__module__", None) in ("_operator", "math", "builtins"):
        return
    for number in concrete.leaves(args):
        if type(number) is int and not -(1 << _BITS) <= number < 1 << _BITS:
            raise OverflowError(f"{name_of(call)} is given an int of more than {_BITS} bits")
        if isinstance(number, torch.SymInt) and not number.node.expr.is_Symbol:
            _require_within(number, _BITS)


def _note_compared(args: Sequence[Any]) -> None:
    """What floats are compared: `a == a` is no question to sympy, and nan is another answer."""
    for number in args:
        if isinstance(number, torch.SymFloat):
            env = number.node.shape_env
            env.recording.compared |= concrete.number_expr(number).free_symbols & env.recording.symbols.keys()


def _require_domain(number: Any, least: float, most: float) -> None:
    if not isinstance(number, (torch.SymInt, torch.SymFloat)):
        return
    env, expr = number.node.shape_env, concrete.number_expr(number)
    if not env.recording.owns(expr):
        torch._check(number >= least, lambda: "math domain error")
        torch._check(number <= most, lambda: "math domain error")
        return
    facts = [sympy.Ge(expr, sympy.Float(least)), sympy.Le(expr, sympy.Float(most))]
    if env.recording.are_sizes(expr):  # which are never that large, and often known to be no smaller
        facts = [fact for fact, bound in zip(facts, (least, most), strict=True) if abs(bound) < _INFINITY]
        if least == 0.0 and env.bound_sympy(expr).lower >= 0:
            return
    if not all(env.holds(fact) for fact in facts):
        raise ValueError("math domain error")


def _require_a_power(base: Any, exponent: Any) -> None:
    """0 has no negative power, and a negative number to a broken one is complex."""
    if isinstance(base, torch.Tensor) or isinstance(exponent, torch.Tensor):
        return
    message = "0.0 cannot be raised to a negative power"
    if isinstance(exponent, torch.SymFloat) or (isinstance(exponent, float) and not exponent.is_integer()):
        _require_of_base(base, base > 0 if isinstance(exponent, torch.SymFloat) or exponent < 0 else base >= 0, message)
    elif exponent < 0:  # which torch asks too, to know the type of the result
        _require_of_base(base, base != 0, message)


def _require_of_base(base: Any, holds: Any, message: str) -> None:
    if isinstance(base, (torch.SymInt, torch.SymFloat)):
        torch._check(holds, lambda: message)
    elif not holds:
        raise ZeroDivisionError(message)


def _require_a_float(number: Any) -> None:
    if isinstance(number, torch.SymFloat):
        env, expr = number.node.shape_env, concrete.number_expr(number)
        fits = not env.recording.owns(expr) or env.holds(sympy.Le(sympy.Abs(expr), sympy.Float(_LARGEST)))
    else:
        fits = type(number) is not float or not math.isfinite(number) or abs(number) <= _LARGEST
    if not fits:
        raise OverflowError("a tensor is made of a float beyond the largest")


def require_of(call: Any, result: Any) -> None:
    """Have a product of the function, or what a float is rounded to, be a number that kernels hold."""
    if call in _GROWING or call in _ROUNDED:
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
