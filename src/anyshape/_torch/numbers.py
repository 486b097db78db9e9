"""What Python does with numbers, where Dynamo does something else (torch 2.11 to 2.15).

Owns `divmod` of a size, which Dynamo does not know; `2 in x.shape`, of which it looks at numbers that are none of sizes
alone; `max` and `min`, which give one of their arguments as it is, an int or a float; `round` to tens; and a size
beside a complex tensor, as the divisor of a mean is: torch's references make it a complex number (`dtype_to_type_ctor`
in _prims_common), and a complex number is never symbolic, so the size would be fixed.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
import torch._dynamo.utils as dynamo_utils
import torch._dynamo.variables.lists as lists
import torch._prims_common as prims_common
from torch._dynamo.variables import BuiltinVariable, ConstantVariable
from torch._dynamo.variables.base import ValueMutationNew
from torch._dynamo.variables.lists import TupleVariable
from torch._dynamo.variables.tensor import SymNodeVariable

_stock = prims_common.dtype_to_type_ctor


def _constructor(dtype: torch.dtype) -> Callable[[Any], Any]:
    stock = _stock(dtype)
    if not dtype.is_complex:
        return stock
    return lambda x: torch.sym_float(x) if isinstance(x, (torch.SymInt, torch.SymFloat)) else stock(x)


def _divmod(self: Any, tx: Any, other: Any, reverse: bool = False) -> Any:
    return TupleVariable(
        [self.nb_floor_divide_impl(tx, other, reverse), self.nb_remainder_impl(tx, other, reverse)],
        mutation_type=ValueMutationNew(),
    )


def _of_constants(name: str, stock: Any) -> Any:
    """`//`, `%` and `**` of floats: there is no expression for their signs and their errors."""

    def impl(self: Any, tx: Any, other: Any, *args: Any) -> Any:
        if not any(isinstance(x, SymNodeVariable) and x.python_type() is float for x in (self, other)):
            number = _constant(other)
            if type(number) is not float:
                return stock(self, tx, other, *args)
        known = [ConstantVariable.create(_value(x)) for x in (self, other)]
        left, right = reversed(known) if args and args[0] else known
        return BuiltinVariable(_ON_FLOATS[name]).call_function(tx, [left, right], {})

    return impl


_ON_FLOATS = {
    "nb_floor_divide_impl": operator.floordiv,
    "nb_remainder_impl": operator.mod,
    "nb_power_impl": operator.pow,
}


def _value(variable: Any) -> Any:
    return variable.evaluate_expr() if isinstance(variable, SymNodeVariable) else variable.as_python_constant()


_stock_contains = dynamo_utils.iter_contains


def _contains(items: Any, search: Any, tx: Any, *args: Any, **kwargs: Any) -> Any:
    """One after another, as Python looks: whether a size is the number is a branch of the function's."""
    items = list(items)
    if not search.is_python_constant() or not any(isinstance(item, SymNodeVariable) for item in items):
        return _stock_contains(items, search, tx, *args, **kwargs)
    for item in items:
        if isinstance(item, SymNodeVariable):
            if not isinstance(search.as_python_constant(), (int, float)):
                continue
            equal = BuiltinVariable(operator.eq).call_function(tx, [item, search], {})
            found = equal.evaluate_expr() if isinstance(equal, SymNodeVariable) else equal.as_python_constant()
        else:
            found = _stock_contains([item], search, tx, *args, **kwargs).as_python_constant()
        if found:
            return ConstantVariable.create(True)
    return ConstantVariable.create(False)


_stock_min_max = BuiltinVariable._call_min_max_binary


def _min_max(self: Any, tx: Any, a: Any, b: Any) -> Any:
    """The argument itself. Of two ints that is one number or the other; with a float it has a type and a sign too."""
    numbers = [x.sym_num if isinstance(x, SymNodeVariable) else _constant(x) for x in (a, b)]
    ints = all(type(n) is int or isinstance(n, torch.SymInt) for n in numbers)
    symbolic = any(isinstance(n, (torch.SymInt, torch.SymFloat, torch.SymBool)) for n in numbers)
    if ints or not symbolic or any(n is None for n in numbers):
        return _stock_min_max(self, tx, a, b)
    other_first = numbers[1] > numbers[0] if self.fn is max else numbers[1] < numbers[0]
    return b if other_first else a


def _constant(variable: Any) -> Any:
    value = variable.as_python_constant() if isinstance(variable, ConstantVariable) else None
    return value if isinstance(value, (int, float)) else None


_stock_round = BuiltinVariable.call_round


def _round(self: Any, tx: Any, arg: Any, *args: Any, **kwargs: Any) -> Any:
    given = [*args, *kwargs.values()]
    if not (isinstance(arg, SymNodeVariable) and isinstance(arg.sym_num, torch.SymInt)) or len(given) > 1:
        return _stock_round(self, tx, arg, *args, **kwargs)
    digits = _constant(given[0]) if given else 0
    if isinstance(given and given[0], SymNodeVariable):
        digits = given[0].evaluate_expr()
    if type(digits) is not int and not (given and given[0].is_constant_none()):
        return _stock_round(self, tx, arg, *args, **kwargs)
    return arg if not digits or digits > 0 else _to_multiples(tx, arg, 10**-digits)


def _to_multiples(tx: Any, number: Any, of: int) -> Any:
    """The nearest multiple of an even number, and of two that are as near that of an even number of times."""

    def call(function: Any, *args: Any) -> Any:
        variables = [ConstantVariable.create(a) if type(a) is int else a for a in args]
        return BuiltinVariable(function).call_function(tx, variables, {})

    shifted = call(operator.add, number, of // 2)
    times = call(operator.floordiv, shifted, of)
    tie = call(operator.sub, 1, call(min, 1, call(operator.mod, shifted, of)))
    odd = call(operator.mul, call(operator.mod, times, 2), tie)
    return call(operator.mul, call(operator.sub, times, odd), of)


@contextlib.contextmanager
def patches() -> Iterator[None]:
    """For a capture."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(prims_common, "dtype_to_type_ctor", _constructor))
        for module in (dynamo_utils, lists):
            if hasattr(module, "iter_contains"):
                stack.enter_context(mock.patch.object(module, "iter_contains", _contains))
        for name in _ON_FLOATS:
            if hasattr(SymNodeVariable, name):
                stock = getattr(SymNodeVariable, name)
                stack.enter_context(mock.patch.object(SymNodeVariable, name, _of_constants(name, stock)))
        stack.enter_context(mock.patch.object(BuiltinVariable, "_call_min_max_binary", _min_max))
        stack.enter_context(mock.patch.object(BuiltinVariable, "call_round", _round))
        if hasattr(SymNodeVariable, "nb_divmod_impl"):
            stack.enter_context(mock.patch.object(SymNodeVariable, "nb_divmod_impl", _divmod))
        yield
