"""SymFloat arithmetic that sympy may not reassociate (`a + 1e16 - 1e16`).

Owns sums, differences, products and quotients that stay as they were written. torch's are sympy's (sym_node.py, 2.11 to
2.15), for which `a + 1e16 - 1e16` is `a`. Put in, numbers are computed as Python computes them; a result that sympy
cannot say (-0.0, infinities, nan) is none, so that nothing is assumed about it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, ClassVar

import sympy
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.fx.experimental.sym_node import SymNode
from torch.utils._sympy.functions import FloatTrueDiv, IntTrueDiv
from torch.utils._sympy.interp import handlers
from torch.utils._sympy.symbol import SymT, symbol_is_type

from anyshape._torch.repairs.registry import Place, repair
from anyshape._torch.repairs.scalars.scalar_arguments import is_expressible
from anyshape._torch.symbolic.shape_env import FreeShapeEnv


def _number(call: Callable[[Any, Any], Any], a: Any, b: Any, kind: type) -> sympy.Float | None:
    """What Python makes of two numbers; None where one is none yet."""
    if not (isinstance(a, sympy.Number) and isinstance(b, sympy.Number)):
        return None
    result = call(kind(a), kind(b))
    if not is_expressible(result):
        raise ZeroDivisionError(f"no expression is {result}")
    return sympy.Float(result)


class _Written(sympy.Function):
    """A function of two floats that is not rewritten."""

    nargs: tuple[int, ...] = (2,)
    is_integer = None
    is_extended_real = True
    call: ClassVar[Any]
    sign: ClassVar[str]

    @classmethod
    def eval(cls, a: Any, b: Any) -> Any:
        return _number(cls.call, a, b, float)

    def _torch_sympystr(self, printer: Any) -> str:
        return f"({printer._print(self.args[0])} {self.sign} {printer._print(self.args[1])})"

    _sympystr = _torch_sympystr


class FloatAdd(_Written):
    call, sign = staticmethod(operator.add), "+"


class FloatMul(_Written):
    call, sign = staticmethod(operator.mul), "*"


# Named as torch names them: the text of a guard calls them by that name.
FloatDiv = type("FloatTrueDiv", (FloatTrueDiv,), {"eval": classmethod(lambda cls, a, b: _quotient(a, b, float))})
IntDiv = type("IntTrueDiv", (IntTrueDiv,), {"eval": classmethod(lambda cls, a, b: _quotient(a, b, int))})


def _quotient(a: Any, b: Any, kind: type) -> sympy.Float | None:
    return _number(operator.truediv, a, b, kind)


_MINUS_ONE = sympy.Float(-1.0)
_HANDLERS = {FloatAdd: "add", FloatMul: "mul", FloatDiv: "truediv", IntDiv: "int_truediv"}
_OF_FLOATS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "_add": (operator.add, FloatAdd),
    "_sub": (operator.sub, lambda a, b: FloatAdd(a, FloatMul(_MINUS_ONE, b))),
    "_mul": (operator.mul, FloatMul),
    "_float_truediv": (operator.truediv, FloatDiv),
    "_int_truediv": (operator.truediv, IntDiv),
}


def _of_arguments(node: Any) -> bool:
    """Whether an int or float argument, or a number out of the data, is part of a number."""
    recording = node.shape_env.recording
    if any(symbol_is_type(s, (SymT.UNBACKED_FLOAT, SymT.UNBACKED_INT)) for s in node.expr.free_symbols):
        return True
    return bool(recording.owns(node.expr) and not recording.are_sizes(node.expr))


@repair(
    *(f"torch.fx.experimental.sym_node:SymNode.{name}" for name in _OF_FLOATS),
    scope="capture",
    phase="capture",
    broken="2.11-2.15",
    symptom="`a + 1e16 - 1e16` is `a`.",
    cause="sym_node.py makes sums, products and quotients of floats of sympy's, which rewrites them.",
    cure="They stay as they were written.",
    goes="when SymNode has functions of its own for arithmetic of floats",
)
def _method(stock: Any, name: str) -> Any:
    call, function = _OF_FLOATS[name]

    def arithmetic(self: Any, other: Any) -> Any:
        floats = name == "_int_truediv" or float in (self.pytype, other.pytype)
        if not floats or not isinstance(self.shape_env, FreeShapeEnv) or get_proxy_mode() is not None:
            return stock(self, other)
        if not (_of_arguments(self) or _of_arguments(other)):
            return stock(self, other)  # what formulas of gradients make of sizes, C++ divides by 0
        hint = call(self.hint, other.hint) if None not in (self.hint, other.hint) else None
        return SymNode(function(self.expr, other.expr), self.shape_env, float, hint, fx_node=None)

    return arithmetic


@repair(
    "torch.fx.experimental.sym_node:SymNode._neg",
    scope="capture",
    phase="capture",
    broken="2.11-2.15",
    symptom="`-(a + b)` of floats is `-a - b`, whose 0 may have another sign.",
    cause="sym_node.py:_neg is sympy's, which multiplies out.",
    cure="It is a product with -1 that stays one.",
    goes="with `float_arithmetic.method`",
)
def _negative(stock: Any) -> Any:
    def negative(self: Any) -> Any:
        if self.pytype is not float or not isinstance(self.shape_env, FreeShapeEnv) or get_proxy_mode() is not None:
            return stock(self)
        if not _of_arguments(self):
            return stock(self)
        hint = None if self.hint is None else -self.hint
        return SymNode(FloatMul(_MINUS_ONE, self.expr), self.shape_env, float, hint, fx_node=None)

    return negative


@repair(
    *(Place(f"torch.utils._sympy.interp:handlers()[{f.__name__}]", lambda f=f: (handlers(), f)) for f in _HANDLERS),
    scope="capture",
    phase="capture",
    kind="meaning",
    symptom="The functions of this module have no meaning in a graph.",
    cause="utils/_sympy/interp.py:handlers has torch's own functions.",
    cure="They are the operators that they stand for.",
    goes="with `float_arithmetic.method`",
    adds=True,
)
def handler(stock: Any, function: Any) -> Any:
    return _HANDLERS[function]
