"""Savings in Dynamo's bytecode around a graph: sizes, disabled wrappers, parameters.

Owns three savings in the code that Dynamo writes. It asks for each size through a Python function inside wrappers that
keep Dynamo out of it, microseconds each: of a plain tensor the method itself may be called, which runs no Python. It
puts such a wrapper around the compiled graph, where switching Dynamo off and on is enough. And it looks up each
parameter in the module at each call: of a module that does not change (`frozen`) they are at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo.decorators as decorators
from torch._C._dynamo.eval_frame import set_eval_frame
from torch._dynamo.bytecode_transformation import create_call_function
from torch._dynamo.eval_frame import innermost_fn, skip_code
from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.source import LocalSource, TensorPropertySource
from torch.fx._lazy_graph_module import _LazyGraphModule

from anyshape._torch.repairs.registry import repair
from anyshape._torch.runtime import sizes

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_stock_reconstruct = TensorPropertySource.reconstruct


@repair(
    "torch._dynamo.source:TensorPropertySource.reconstruct",
    scope="capture",
    phase="capture",
    kind="speed",
    symptom="Each size costs microseconds in a call.",
    cause="source.py:TensorPropertySource.reconstruct calls a Python function inside wrappers that keep Dynamo out.",
    cure="Of a plain tensor the method itself is called.",
    goes="when Dynamo reads sizes without Python",
)
def _reconstruct(self: Any, codegen: Any) -> None:
    read = codegen.tx.output.input_source_to_var.get(self.base)
    if getattr(read, "class_type", None) not in _PLAIN:
        _stock_reconstruct(self, codegen)
        return
    codegen.add_push_null(lambda: codegen.load_import_from(sizes.__name__, self.prop.method_name()))
    codegen(self.base)
    if self.idx is not None:
        codegen.append_output(codegen.create_load_const(self.idx))
    codegen.extend_output(create_call_function(1 if self.idx is None else 2, False))


@repair(
    "torch._dynamo.variables.builder:GraphArg.reconstruct",
    scope="capture",
    phase="capture",
    kind="speed",
    symptom="Each parameter is looked up in its module in each call.",
    cause="variables/builder.py:GraphArg.reconstruct writes the way that leads to it.",
    cure="Of a module that does not change (`frozen`) a parameter is a global of the code.",
    goes="when Dynamo does so for frozen modules",
)
def _load_of(stock: Any, *, frozen: torch.nn.Module | None) -> Any:
    """A parameter of the module is a global of the code, which is for that module alone then."""
    if frozen is None:
        return stock
    module = frozen

    def load(self: Any, codegen: Any) -> None:
        root = self.source
        while hasattr(root, "base"):
            root = root.base
        of = codegen.tx.f_locals.get(root.local_name) if isinstance(root, LocalSource) else None
        if of is not module or type(self.example) is not torch.nn.Parameter:
            stock(self, codegen)
            return
        install_guard(root.make_guard(GuardBuilder.ID_MATCH))
        name = codegen.tx.output.install_global_by_id("__anyshape_parameter", self.example)
        codegen.append_output(codegen.create_load_global(name, add=True))

    return load


_stock_disable = decorators.disable


def apart_from_dynamo(run: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled graph, for Dynamo's code to call: Dynamo looks at nothing that runs inside."""

    def call(*args: Any) -> Any:
        before = set_eval_frame(None)
        try:
            return run(*args)
        finally:
            if before is not None:
                set_eval_frame(before)

    return call


_APART = apart_from_dynamo(print).__code__  # one code for all of them
skip_code(_APART)


def without_wrapper(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """What a backend gave back, without the wrapper of its own that keeps Dynamo out.

    The code of a graph that is called as it is gets written now, as by Dynamo itself (output_graph.py): the first call
    would otherwise go through the module, and run the global hooks of modules.
    """
    innermost = innermost_fn(compiled)
    graph = getattr(innermost, "__self__", None)
    if isinstance(graph, _LazyGraphModule) and innermost.__name__ == "_lazy_forward":
        _LazyGraphModule.force_recompile(graph)
        return graph.forward
    return innermost  # type: ignore[no-any-return]


@repair(
    "torch._dynamo.decorators:disable",
    scope="capture",
    phase="capture",
    kind="speed",
    symptom="A compiled graph is called through wrappers that keep Dynamo out.",
    cause="decorators.py:disable puts them around every callable.",
    cure="Where switching Dynamo off and on is enough, that is done.",
    goes="when calling a disabled function is as cheap",
)
def _disable(fn: Any = None, *args: Any, **kwargs: Any) -> Any:
    return fn if getattr(fn, "__code__", None) is _APART else _stock_disable(fn, *args, **kwargs)
