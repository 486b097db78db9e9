"""torch's sympy functions of ints (FloorDiv, Mod, bitwise ones) for negative numbers.

Owns four repairs of torch's functions for sympy (torch/utils/_sympy/functions.py, 2.11 to 2.15). They simplify as if
nothing were negative: `(n // 4) // -2` is not `n // -8`, and `-5 % -2` is not `-5`. What `&`, `|` and `^` give is not
said to be an int, so that Inductor promotes to a float. And `Max(2, 4)` is left as it is in another minimum. They hold
for all that is made of such expressions in a capture, also where a number is put in later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
from torch.utils._sympy.functions import FloorDiv, Max, Min, PythonMod

from anyshape._torch.repairs.registry import repair

_stock_floor_div: Callable[..., Any] = FloorDiv.__new__
_stock_mod: Callable[..., Any] = PythonMod.__new__


@repair(
    "torch.utils._sympy.functions:FloorDiv.__new__",
    scope="capture",
    phase="capture",
    broken="2.11-2.15",
    symptom="`(n // 4) // -2` is `n // -8`.",
    cause="utils/_sympy/functions.py:FloorDiv.eval simplifies as if nothing were negative.",
    cure="What has a negative divisor is not simplified.",
    goes="when FloorDiv.eval looks at signs",
)
def _floor_div(cls: Any, *args: Any, **options: Any) -> Any:
    if options.get("evaluate", True) and isinstance(args[0], FloorDiv):
        divisor = sympy.sympify(args[1])
        if not divisor.is_nonnegative and abs(divisor) != 1:
            return _stock_floor_div(cls, *args, evaluate=False)
    return _stock_floor_div(cls, *args, **options)


@repair(
    "torch.utils._sympy.functions:PythonMod.__new__",
    scope="capture",
    phase="capture",
    broken="2.11-2.15",
    symptom="`-5 % -2` is -5.",
    cause="utils/_sympy/functions.py:PythonMod.eval simplifies as if nothing were negative.",
    cure="What has a negative divisor is not simplified.",
    goes="when PythonMod.eval looks at signs",
)
def _mod(cls: Any, *args: Any, **options: Any) -> Any:
    if options.get("evaluate", True):
        number, divisor = map(sympy.sympify, args)
        if divisor.is_negative and not number.is_number and number.is_negative:
            return _stock_mod(cls, *args, evaluate=False)
    return _stock_mod(cls, *args, **options)


@repair(
    "torch.utils._sympy.functions:BitwiseFn_bitwise_and.is_integer",
    "torch.utils._sympy.functions:BitwiseFn_bitwise_or.is_integer",
    "torch.utils._sympy.functions:BitwiseFn_bitwise_xor.is_integer",
    scope="capture",
    phase="capture",
    broken="2.11-2.15",
    symptom="What `&`, `|` and `^` of ints give is promoted to a float.",
    cause="utils/_sympy/functions.py does not say that these functions give ints.",
    cure="It is said.",
    goes="when they have is_integer = True",
    absent="skip",
)
def is_integer(stock: Any) -> Any:
    return True


@repair(
    "torch.utils._sympy.functions:MinMaxBase._collapse_arguments",
    scope="capture",
    phase="capture",
    broken="2.11-2.15",
    symptom="A loop over parts of a batch is not compiled: `Failed to realize expression to int`.",
    cause="utils/_sympy/functions.py:_collapse_arguments makes Max(2, 4) of Max(2, Min(n, 4)), which is no number.",
    cure="It is evaluated.",
    goes="when _collapse_arguments evaluates what it has changed",
)
def of_numbers(stock: Any) -> Any:
    def collapse(cls: Any, args: Any, **assumptions: Any) -> list[Any]:
        return [_evaluated(arg) for arg in stock.__func__(cls, args, **assumptions)]

    return classmethod(collapse)


def _evaluated(expr: Any) -> Any:
    """A minimum or maximum of which two arguments have become numbers."""
    if not isinstance(expr, (Min, Max)):
        return expr
    args = [_evaluated(arg) for arg in expr.args]
    numbers = sum(arg.is_Number for arg in args)
    return expr if numbers < 2 and tuple(args) == expr.args else expr.func(*args)
