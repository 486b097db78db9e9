"""SymInts in `range` objects (`n in range(3)`), and numbers compared with complex ones.

Owns repairs of Dynamo, which asks both of constants alone. `n in range(3)` is compared as Python does, each question a
branch of the function's; and a number beside a complex one is that of the call.
"""

from __future__ import annotations

import operator
from typing import Any

from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._dynamo.variables import BuiltinVariable, ConstantVariable
from torch._dynamo.variables.tensor import SymNodeVariable

from anyshape._torch.repairs.registry import repair

_NUMBERS = (int, float, bool)


@repair(
    "torch._dynamo.variables.lists:RangeVariable.range_count",
    scope="capture",
    phase="capture",
    broken="2.11-2.15",
    symptom="`n in range(3)` is never compiled.",
    cause="variables/lists.py:RangeVariable.range_count compares constants alone.",
    cure="A symbolic number is compared as Python does.",
    goes="when range_count knows symbolic numbers",
)
def range_count(stock: Any) -> Any:
    def count(self: Any, x: Any) -> int:
        if not any(isinstance(v, SymNodeVariable) for v in (x, *self.items)):
            return (
                int(self.as_python_constant().count(x.as_python_constant()))
                if x.is_python_constant()
                else stock(self, x)
            )
        return int(_is_in(x, *self.items)) if x.python_type() in _NUMBERS else 0

    return count


@repair(
    "torch._dynamo.variables.lists:RangeVariable.sq_contains",
    "torch._dynamo.variables.lists:RangeVariable.sq_contains_impl",
    scope="capture",
    phase="capture",
    broken="2.13-2.15",
    symptom="`2 in range(n)` is 1, and no bool.",
    cause="variables/lists.py:RangeVariable.sq_contains gives a count.",
    cure="It gives a bool.",
    goes="when sq_contains gives a bool",
    absent="skip",
)
def range_contains(stock: Any) -> Any:
    return lambda self, tx, item: ConstantVariable.create(bool(self.range_count(item)))


@repair(
    "torch._dynamo.variables.lists:RangeVariable.call_method",
    scope="capture",
    phase="capture",
    broken="2.11",
    symptom="`2 in range(n)` is 1, and no bool.",
    cause="variables/lists.py:RangeVariable.call_method gives a count.",
    cure="It gives a bool.",
    goes="with torch 2.11",
)
def range_method(stock: Any) -> Any:
    def call(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        if name == "__contains__" and len(args) == 1 and not kwargs:
            return ConstantVariable.create(bool(self.range_count(args[0])))
        return stock(self, tx, name, args, kwargs)

    return call


def _is_in(x: Any, start: Any, stop: Any, step: Any) -> bool:
    if _holds(operator.lt, step, 0):
        within = _holds(operator.lt, stop, x) and _holds(operator.le, x, start)
    else:
        within = _holds(operator.le, start, x) and _holds(operator.lt, x, stop)
    if not within or (
        step.is_python_constant() and abs(step.as_python_constant()) == 1 and x.python_type() is not float
    ):
        return within
    return _holds(operator.eq, _call(operator.mod, _call(operator.sub, x, start), step), 0)


def _call(function: Any, *args: Any) -> Any:
    variables = [ConstantVariable.create(a) if type(a) is int else a for a in args]
    return BuiltinVariable(function).call_function(InstructionTranslator.current_tx(), variables, {})


def _holds(function: Any, *args: Any) -> bool:
    answer = _call(function, *args)
    return bool(answer.evaluate_expr() if isinstance(answer, SymNodeVariable) else answer.as_python_constant())


_stock_comparison = BuiltinVariable._comparison_with_symnode


@repair(
    "torch._dynamo.variables.builtin:BuiltinVariable._comparison_with_symnode",
    scope="capture",
    phase="capture",
    broken="2.11-2.15",
    symptom="`n == 2 + 0j` is False for an n of 2.",
    cause="variables/builtin.py:_comparison_with_symnode compares a symbolic number, which knows no complex one.",
    cure="The number is that of the call.",
    goes="when symbolic numbers compare with complex ones",
)
def _compared(self: Any, tx: Any, left: Any, right: Any) -> Any:
    if not any(v.is_python_constant() and isinstance(v.as_python_constant(), complex) for v in (left, right)):
        return _stock_comparison(self, tx, left, right)
    numbers = [v.evaluate_expr() if isinstance(v, SymNodeVariable) else v.as_python_constant() for v in (left, right)]
    return self.call_function(tx, [ConstantVariable.create(n) for n in numbers], {})
