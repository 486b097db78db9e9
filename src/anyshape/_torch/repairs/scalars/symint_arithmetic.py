"""SymInts in `divmod`, `in`, `max`, `min`, `round`, and beside complex tensors.

Owns `divmod` of a size, which Dynamo does not know; `2 in x.shape`, of which it looks at numbers that are none of sizes
alone; `max` and `min`, which give one of their arguments as it is, an int or a float; `round` to tens; and a size
beside a complex tensor, as the divisor of a mean is: torch's references make it a complex number (`dtype_to_type_ctor`
in _prims_common), and a complex number is never symbolic, so the size would be fixed.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo.utils as dynamo_utils
import torch._prims_common as prims_common
from torch._dynamo.variables import BuiltinVariable, ConstantVariable
from torch._dynamo.variables.base import ValueMutationNew
from torch._dynamo.variables.lists import TupleVariable
from torch._dynamo.variables.tensor import SymNodeVariable

from anyshape._torch.repairs.registry import repair
from anyshape._torch.repairs.scalars.scalar_arguments import is_expressible

_ON_FLOATS = {
    "nb_floor_divide_impl": operator.floordiv,
    "nb_remainder_impl": operator.mod,
    "nb_power_impl": operator.pow,
}
_OF_NUMBERS = {
    "nb_add_impl": operator.add,
    "nb_subtract_impl": operator.sub,
    "nb_multiply_impl": operator.mul,
    "nb_true_divide_impl": operator.truediv,
}
_stock = prims_common.dtype_to_type_ctor


HANDLERS: dict[Any, Any] = {}
binop_handlers = functools.cache(BuiltinVariable._binop_handlers.__wrapped__)
_KEPT: Any = {
    "scope": "capture",
    "phase": "capture",
    "kind": "meaning",
    "symptom": "After a capture of stock torch's, `round(n, -1)` is what stock makes of it, and the other way round.",
    "cause": "variables/builtin.py:BuiltinVariable keeps the methods that it has once called for a builtin.",
    "cure": "A capture keeps its own.",
    "goes": "with the repairs of methods of BuiltinVariable",
}


@repair("torch._dynamo.variables.builtin:BuiltinVariable.call_function_handler_cache", **_KEPT)
def handlers(stock: Any) -> Any:
    return HANDLERS


@repair("torch._dynamo.variables.builtin:BuiltinVariable._binop_handlers", **_KEPT)
def handlers_of_operators(stock: Any) -> Any:
    return staticmethod(binop_handlers)


@repair(
    "torch._prims_common:dtype_to_type_ctor",
    scope="capture",
    phase="fake run",
    broken="2.11-2.15",
    symptom="A size beside a complex tensor is fixed: the mean of one has a program for each size.",
    cause="_prims_common/__init__.py:dtype_to_type_ctor makes it a complex number, which is never symbolic.",
    cure="It is made a symbolic float.",
    goes="when dtype_to_type_ctor has an answer for symbolic numbers",
)
def _constructor(dtype: torch.dtype) -> Callable[[Any], Any]:
    stock = _stock(dtype)
    if not dtype.is_complex:
        return stock
    return lambda x: torch.sym_float(x) if isinstance(x, (torch.SymInt, torch.SymFloat)) else stock(x)


@repair(
    "torch._dynamo.variables.tensor:SymNodeVariable.nb_divmod_impl",
    scope="capture",
    phase="capture",
    broken="2.13-2.15",
    symptom="`divmod` of a size breaks the graph.",
    cause="variables/tensor.py:SymNodeVariable has no divmod.",
    cure="It is a quotient and a remainder.",
    goes="when Dynamo knows divmod of sizes",
    absent="skip",
)
def _divmod(self: Any, tx: Any, other: Any, reverse: bool = False) -> Any:
    return TupleVariable(
        [self.nb_floor_divide_impl(tx, other, reverse), self.nb_remainder_impl(tx, other, reverse)],
        mutation_type=ValueMutationNew(),
    )


@repair(
    *(f"torch._dynamo.variables.tensor:SymNodeVariable.{name}" for name in _ON_FLOATS),
    scope="capture",
    phase="capture",
    broken="2.13-2.15",
    symptom="`//`, `%` and `**` of floats have other signs and errors than Python's.",
    cause="sym_node.py has no expression for them.",
    cure="They are computed from the numbers of the call.",
    goes="when symbolic floats divide as Python does",
    absent="skip",
)
def _of_constants(stock: Any, name: str) -> Any:
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


@repair(
    *(f"torch._dynamo.variables.tensor:SymNodeVariable.{name}" for name in _OF_NUMBERS),
    scope="capture",
    phase="capture",
    broken="2.13-2.15",
    symptom="`x.shape[0] * -0.0` is 0.0, and a size of 0 times infinity is no nan.",
    cause="An expression has no -0.0, infinities and nan.",
    cure="What is computed with one of these is computed from the numbers of the call.",
    goes="when expressions have them",
    absent="skip",
)
def _with_inexpressible(stock: Any, name: str) -> Any:
    def impl(self: Any, tx: Any, other: Any, *args: Any) -> Any:
        number = _constant(other)
        if type(number) is not float or is_expressible(number):
            return stock(self, tx, other, *args)
        known = [ConstantVariable.create(_value(x)) for x in (self, other)]
        left, right = reversed(known) if args and args[0] else known
        return BuiltinVariable(_OF_NUMBERS[name]).call_function(tx, [left, right], {})

    return impl


def _value(variable: Any) -> Any:
    return variable.evaluate_expr() if isinstance(variable, SymNodeVariable) else variable.as_python_constant()


@repair(
    "torch._dynamo.variables.builtin:BuiltinVariable.call_invert",
    scope="capture",
    phase="capture",
    broken="2.11-2.15",
    symptom="`~n` of a size or an int is never compiled.",
    cause="variables/builtin.py knows ~ of constants and of tensors alone.",
    cure="It is -1 - n.",
    goes="when Dynamo knows ~ of symbolic numbers",
    adds=True,
)
def inverted(stock: Any) -> Any:
    def invert(self: Any, tx: Any, number: Any) -> Any:
        if not isinstance(number, SymNodeVariable) or number.python_type() is float:
            return stock(self, tx, number) if callable(stock) else None
        return BuiltinVariable(operator.sub).call_function(tx, [ConstantVariable.create(-1), number], {})

    return invert


_stock_contains = dynamo_utils.iter_contains


@repair(
    "torch._dynamo.utils:iter_contains",
    "torch._dynamo.variables.lists:iter_contains",
    scope="capture",
    phase="capture",
    broken="2.11-2.15",
    symptom="`2 in x.shape` is False for a size of 2.",
    cause="utils.py:iter_contains looks at numbers that are none of sizes alone.",
    cure="One after another is compared, as Python does.",
    goes="when iter_contains compares sizes",
    absent="skip",
)
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


@repair(
    "torch._dynamo.variables.builtin:BuiltinVariable._call_min_max_binary",
    scope="capture",
    phase="capture",
    broken="2.11-2.15",
    symptom="`max(n, 2.0)` is a float where Python gives the int.",
    cause="variables/builtin.py:_call_min_max_binary is sym_max, which promotes.",
    cure="It gives one of its arguments as it is.",
    goes="when _call_min_max_binary keeps types",
)
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


@repair(
    "torch._dynamo.variables.builtin:BuiltinVariable.call_round",
    scope="capture",
    phase="capture",
    broken="2.11-2.15",
    symptom="`round(n, -1)` of a size fails, or fixes the size.",
    cause="variables/builtin.py:call_round rounds floats to digits.",
    cure="An int is rounded to tens as Python does.",
    goes="when call_round knows ints",
)
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
