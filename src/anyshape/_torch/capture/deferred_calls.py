"""Calls with a free number of results (`x.unbind()`), made by the frame after its graph.

Owns the calls whose number of results follows a free size (`x.unbind()`, `x.split(2)`) and that a function ends with.
A graph has a fixed number of outputs, so as a part of it such a call would cost a program a size. Nothing follows it,
so it is left out of the graph: the compiled frame makes the call itself, on what the graph gave.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._dynamo.bytecode_transformation import create_call_function, create_instruction
from torch._dynamo.codegen import PyCodegen
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.tensor import SymNodeVariable, TensorVariable

from anyshape._torch.repairs import registry
from anyshape._torch.repairs.dynamo import graph_breaks
from anyshape._torch.repairs.registry import repair

_BY_DIM = ("unbind", "unbind_copy")  # (x, dim): a result for each index
_BY_SIZE = ("split", "unsafe_split", "split_copy", "chunk", "unsafe_chunk")  # (x, number, dim): as many as it takes
_NAMES = (*_BY_DIM, *_BY_SIZE)
_FUNCTIONS = {getattr(torch, n): n for n in _NAMES if hasattr(torch, n)}


class Afterwards(VariableTracker):  # type: ignore[misc]
    """The value of a call that the compiled frame makes when its graph has run."""

    def __init__(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any], **rest: Any) -> None:
        super().__init__(**rest)
        self.function, self.args, self.kwargs = function, list(args), dict(kwargs)

    def reconstruct(self, codegen: Any) -> None:
        name = codegen.tx.output.install_global_by_id("anyshape_afterwards", self.function)
        codegen.add_push_null(lambda: codegen.append_output(codegen.create_load_global(name, add=True)))
        codegen.foreach([*self.args, *self.kwargs.values()])
        count = len(self.args) + len(self.kwargs)
        if self.kwargs:
            codegen.extend_output(codegen.create_call_function_kw(count, tuple(self.kwargs), push_null=False))
        else:
            codegen.extend_output(create_call_function(count, False))


@contextlib.contextmanager
def counted(count: Callable[[], None], broke_off: Callable[[str], None] | None = None) -> Iterator[None]:
    """A frame whose graph is empty runs no graph that could count its calls, so it calls `count` itself.

    Or, where a graph break is what it begins with, `broke_off` with the reason of that.
    """
    with registry.entered("count", count=count, broke_off=broke_off):
        yield


@repair(
    "torch._dynamo.output_graph:OutputGraph.compile_subgraph",
    scope="count",
    phase="capture",
    kind="meaning",
    apart=False,
    symptom="Calls of a frame whose graph is empty are counted nowhere.",
    cause="Such a frame calls no compiled graph.",
    cure="It calls a counter.",
    goes="when Dynamo counts the calls of a cache entry",
)
def compile_subgraph(
    stock: Any, *, count: Callable[[], None], broke_off: Callable[[str], None] | None
) -> Callable[..., Any]:
    def compile_(self: Any, tx: Any, reason: Any, **kwargs: Any) -> Any:
        said: Callable[[], None] | None = count if not reason.graph_break else None
        if reason.graph_break and broke_off is not None:
            said = functools.partial(broke_off, graph_breaks.text(reason))
        if self.count_calls() == 0 and said is not None:
            codegen = PyCodegen(tx)
            name = self.install_global_by_id("anyshape_count", said)
            codegen.add_push_null(lambda: codegen.append_output(codegen.create_load_global(name, add=True)))
            codegen.extend_output([*create_call_function(0, False), create_instruction("POP_TOP")])
            self.pregraph_bytecode.extend(codegen.get_instructions())
        return stock(self, tx, reason, **kwargs)

    return compile_


_ABOUT: Any = {
    "phase": "capture",
    "broken": "2.11-2.15",
    "symptom": "A program for each number of results of `x.unbind()`, also where a function ends with it.",
    "cause": "A graph has a fixed number of outputs.",
    "cure": "The compiled frame makes the call itself, on what the graph gave.",
    "goes": "when Dynamo leaves such calls to the frame",
}


@repair(
    "torch._dynamo.variables.torch:TorchInGraphFunctionVariable.call_function",
    scope="capture",
    over=("out_calls.call_function",),
    **_ABOUT,
)
def function(stock: Any, *, exporting: bool) -> Any:
    def call(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        name = _FUNCTIONS.get(self.value) if isinstance(self.value, Callable) else None  # type: ignore[arg-type]
        if name is not None and _waits(tx, name, list(args), kwargs):
            return Afterwards(self.value, args, kwargs)
        return stock(self, tx, args, kwargs)

    return stock if exporting else call


@repair(
    "torch._dynamo.variables.tensor:TensorVariable.call_method",
    scope="capture",
    over=("nodes.call_method",),
    **_ABOUT,
)
def method(stock: Any, *, exporting: bool) -> Any:
    def call(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        if name in _NAMES and _waits(tx, name, [self, *args], kwargs):
            return Afterwards(getattr(torch.Tensor, name), [self, *args], kwargs)
        return stock(self, tx, name, args, kwargs)

    return stock if exporting else call


def _waits(tx: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a call can be left for after the graph, and has to be if the graph is to serve other sizes."""
    realized = lambda value: value.realize()
    return _ends(tx) and _count_is_free(name, list(map(realized, args)), {k: realized(v) for k, v in kwargs.items()})


def _ends(tx: Any) -> bool:
    """Whether the frame, and every frame that it was inlined into, does nothing more than return what it gets."""
    if tx.output.current_tracer.parent is not None:  # the body of a higher-order call
        return False
    while tx is not None:
        pointer = tx.instruction_pointer
        if pointer is None:
            return False
        follows = tx.instructions[pointer]
        while follows.opname == "JUMP_FORWARD":
            follows = follows.target
        if follows.opname != "RETURN_VALUE":
            return False
        tx = tx.parent
    return True


def _count_is_free(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    names = ("self", "dim") if name in _BY_DIM else ("self", "number", "dim")
    given = dict(zip(names, args, strict=False))
    if len(args) > len(names) or not isinstance(given.get("self"), TensorVariable):
        return False
    numbers = [v for k, v in kwargs.items() if k != "dim"]
    number = given.get("number", numbers[0] if numbers else None)
    if isinstance(number, SymNodeVariable):
        return True
    if name in _BY_SIZE and not (number is not None and number.is_python_constant()):
        return False
    if name in _BY_SIZE and not isinstance(number.as_python_constant(), int):  # type: ignore[union-attr]
        return False  # a list of sizes has its own length
    tensor = given["self"].as_proxy().node.meta["example_value"]
    dim = given.get("dim", kwargs.get("dim"))
    if isinstance(dim, SymNodeVariable):  # an int argument: any of them
        return any(isinstance(n, torch.SymInt) for n in tensor.shape)
    index = 0 if dim is None else dim.as_python_constant() if dim.is_python_constant() else None
    if not isinstance(index, int) or not -tensor.dim() <= index < tensor.dim():
        return False
    return isinstance(tensor.shape[index], torch.SymInt)
