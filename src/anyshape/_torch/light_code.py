"""What compiled code does besides computing, made cheaper.

Owns two savings in the code that Dynamo writes. It asks for each size through a Python function inside wrappers that
keep Dynamo out of it, microseconds each: of a plain tensor the method itself may be called, which runs no Python. And
it puts such a wrapper around the compiled graph, where switching Dynamo off and on is enough.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
import torch._dynamo.decorators as decorators
from torch._C._dynamo.eval_frame import set_eval_frame
from torch._dynamo.bytecode_transformation import create_call_function
from torch._dynamo.eval_frame import innermost_fn, skip_code
from torch._dynamo.source import TensorPropertySource

from anyshape._torch import sizes

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_stock_reconstruct = TensorPropertySource.reconstruct


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
    """What a backend gave back, without the wrapper of its own that keeps Dynamo out."""
    return innermost_fn(compiled)  # type: ignore[no-any-return]


def _disable(fn: Any = None, *args: Any, **kwargs: Any) -> Any:
    return fn if getattr(fn, "__code__", None) is _APART else _stock_disable(fn, *args, **kwargs)


@contextlib.contextmanager
def patches() -> Iterator[None]:
    """For the code of a capture of anyshape's."""
    with (
        mock.patch.object(TensorPropertySource, "reconstruct", _reconstruct),
        mock.patch.object(decorators, "disable", _disable),
    ):
        yield
