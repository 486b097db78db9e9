"""Symbolic numbers in f-strings, and complex constants in the code of a graph.

Owns three repairs (torch 2.11 to 2.15). Of `f"{n}"` Dynamo remembers where `n` came from, and gives the number itself
back where the text is returned. What is said of the text (`!r`) is left out, too. And the code of a graph with a
complex infinity or nan in it has names (`infj`) that mean nothing there, and no parentheses around a negative base.
"""

from __future__ import annotations

import cmath
import math
import operator
from typing import Any

import torch
from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch._dynamo.variables import StringFormatVariable
from torch._dynamo.variables.tensor import SymNodeVariable
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.graph import _CustomBuiltin

from anyshape._torch.repairs.registry import repair

_stock: Any = getattr(InstructionTranslatorBase, "_format_value", None)
_NAMES = {"infj": cmath.infj, "nanj": cmath.nanj}
_CONVERSIONS = {0: "", 1: "!s", 2: "!r", 3: "!a"}


@repair(
    "torch._dynamo.symbolic_convert:InstructionTranslatorBase._format_value",
    scope="capture",
    phase="capture",
    broken="2.11-2.15",
    symptom='Of `f"{n}"` the number itself is given back, and `!r` is left out.',
    cause="symbolic_convert.py:_format_value remembers where the number came from.",
    cure="A number in a text is formatted.",
    goes="when _format_value makes a text of a number",
    absent="skip",
)
def _format_value(self: Any, fmt_spec: Any, flags: int) -> None:
    if not isinstance(self.stack[-1], SymNodeVariable) or not fmt_spec.is_python_constant():
        return _stock(self, fmt_spec, flags)  # type: ignore[no-any-return]
    form = f"{{{_CONVERSIONS[flags & 3]}:{fmt_spec.as_python_constant()}}}"
    self.push(StringFormatVariable(form, [self.pop()], {}))
    return None


def keep_signs(graph: Any) -> None:
    """A power of a negative number (`(-2) ** n`) is a call: torch writes `-2 ** n`, which is another number."""
    for node in graph.graph.find_nodes(op="call_function", target=operator.pow):
        base = node.args[0]
        if isinstance(base, (int, float)) and math.copysign(1.0, base) < 0:
            node.target = pow
            graph.recompile()


def write_now(graph: Any) -> None:
    """Have the code of a graph with such a number written while the names have a meaning, and not by its first call."""
    numbers: list[Any] = []
    for node in graph.graph.nodes:
        torch.fx.node.map_aggregate((node.args, node.kwargs), numbers.append)
    if any(isinstance(n, complex) and not cmath.isfinite(n) for n in numbers):
        _LazyGraphModule.force_recompile(graph)


_stock_header = PythonWrapperCodegen.write_header


@repair(
    "torch._inductor.codegen.wrapper:PythonWrapperCodegen.write_header",
    scope="capture",
    phase="codegen",
    broken="2.11-2.15",
    symptom="NameError: `infj`, in code with a complex infinity or nan.",
    cause="codegen/wrapper.py writes such a number as Python prints it.",
    cure="The names are imported.",
    goes="when complex numbers are written as calls of complex()",
)
def _write_header(self: Any) -> None:
    _stock_header(self)
    for name in _NAMES:
        self.imports.writeline(f"from cmath import {name}")


@repair(
    "torch.fx.graph:_custom_builtins[infj]",
    "torch.fx.graph:_custom_builtins[nanj]",
    scope="capture",
    phase="capture",
    broken="2.11-2.15",
    symptom="NameError: `infj`, in the code of a graph with a complex infinity or nan.",
    cause="fx/graph.py writes such a number as Python prints it.",
    cure="The names have a meaning there.",
    goes="when complex numbers are written as calls of complex()",
    adds=True,
)
def custom_builtins(stock: Any, name: str) -> Any:
    return _CustomBuiltin(f"from cmath import {name}", _NAMES[name])
