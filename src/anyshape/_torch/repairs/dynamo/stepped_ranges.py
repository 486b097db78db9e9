"""`range(0, n, step)` over a symbolic size: a guard on its length, not on the size.

Owns one repair: of `range(0, n, 128)` Dynamo takes the very `n` for a number, which is a program for each size (2.11 to
2.15). Its elements depend on how many there are and on nothing else, so that is what is asked.
"""

from __future__ import annotations

from typing import Any

from torch._dynamo.variables import ConstantVariable
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.tensor import SymNodeVariable

from anyshape._torch.repairs.registry import repair

_stock_range = BuiltinVariable.call_range


@repair(
    "torch._dynamo.variables.builtin:BuiltinVariable.call_range",
    scope="capture",
    phase="capture",
    broken="2.11-2.15",
    symptom="A program for each size of `range(0, n, 128)`.",
    cause="variables/builtin.py:BuiltinVariable.call_range takes n for a number.",
    cure="How many elements there are is all that is asked.",
    goes="when call_range asks for the length of the range",
)
def _range(self: Any, tx: Any, *args: Any, **kwargs: Any) -> Any:
    if len(args) == 3 and isinstance(args[1], SymNodeVariable) and all(map(_is_int, (args[0], args[2]))):
        start, step = args[0].value, args[2].value
        if abs(step) > 1:
            rounds = int((args[1].sym_num - start + step - (1 if step > 0 else -1)) // step)
            args = (args[0], ConstantVariable.create(start + max(rounds, 0) * step), args[2])
    return _stock_range(self, tx, *args, **kwargs)


def _is_int(value: Any) -> bool:
    return isinstance(value, ConstantVariable) and type(value.value) is int
