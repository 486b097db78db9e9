"""Functions of ints, as expressions.

Owns three repairs of torch's functions for sympy (torch/utils/_sympy/functions.py, 2.11 to 2.15). They simplify as if
nothing were negative: `(n // 4) // -2` is not `n // -8`, and `-5 % -2` is not `-5`. And what `&`, `|` and `^` give is
not said to be an int, so that Inductor promotes to a float. They hold for all that is made of such expressions in a
capture, also where a number is put in later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
from torch.utils._sympy.functions import FloorDiv, PythonMod

from anyshape._torch.repairs import repair

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
