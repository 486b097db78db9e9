"""Integer division by negative numbers, as an expression.

Owns two repairs of torch's functions for sympy (torch/utils/_sympy/functions.py, 2.11 to 2.15), which simplify as if
nothing were negative: `(n // 4) // -2` is not `n // -8`, and `-5 % -2` is not `-5`. They hold for all that is made of
such expressions in a capture, also where a number is put in later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import sympy
from torch.utils._sympy.functions import FloorDiv, PythonMod

_stock_floor_div: Callable[..., Any] = FloorDiv.__new__
_stock_mod: Callable[..., Any] = PythonMod.__new__


def _floor_div(cls: Any, *args: Any, **options: Any) -> Any:
    if options.get("evaluate", True) and isinstance(args[0], FloorDiv):
        divisor = sympy.sympify(args[1])
        if not divisor.is_nonnegative and abs(divisor) != 1:
            return _stock_floor_div(cls, *args, evaluate=False)
    return _stock_floor_div(cls, *args, **options)


def _mod(cls: Any, *args: Any, **options: Any) -> Any:
    if options.get("evaluate", True):
        number, divisor = map(sympy.sympify, args)
        if divisor.is_negative and not number.is_number and number.is_negative:
            return _stock_mod(cls, *args, evaluate=False)
    return _stock_mod(cls, *args, **options)


@contextlib.contextmanager
def patches() -> Iterator[None]:
    """For a capture."""
    with mock.patch.object(FloorDiv, "__new__", _floor_div), mock.patch.object(PythonMod, "__new__", _mod):
        yield
