"""Calls that Dynamo passes over without showing any frame of them: why, and how the next one is shown.

Owns the reasons for which torch runs a compiled callable eagerly before anything of anyshape's is asked: a stance, a
dispatch mode, a mark on the code object. The mark is one for all compilers in the process, so what is compiled by
anyshape goes on with a code object of its own where another compilation has left one.
"""

from __future__ import annotations

import types
from typing import Any

import torch
import torch._dynamo.config as dynamo_config
import torch._dynamo.eval_frame as eval_frame
import torch._dynamo.trace_rules as trace_rules
import torch.fx._symbolic_trace as symbolic_trace
from torch._C import _get_tracing_state, _len_torch_dispatch_stack


def is_traced() -> bool:
    """Whether the call is a part of a trace or capture that is under way."""
    return torch.compiler.is_compiling() or _get_tracing_state() is not None


def reason(code: types.CodeType | None, name: str, *, disabled: bool) -> str:
    """Why Dynamo has shown no frame of a call that is over."""
    where = f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else name
    return f"{where}: {DISABLED if disabled else _from_outside(code) or MARKED}"


DISABLED = "compiling is disabled (disable=True, torch.compiler.disable, TORCHDYNAMO_DISABLE)"
MARKED = "torch has marked its code to be skipped, in another compilation of it"


def is_marked(code: types.CodeType | None) -> bool:
    """Whether it is for a mark on the code object: nothing else keeps a frame from being shown."""
    return code is not None and _from_outside(code) is None


def _from_outside(code: types.CodeType | None) -> str | None:
    """What keeps Dynamo away from a code object that is not marked."""
    stance = eval_frame._stance
    if stance.stance != "default":
        return f'torch.compiler.set_stance("{stance.stance}")'
    if dynamo_config.disable:
        return "compiling is disabled (TORCH_COMPILE_DISABLE, torch._dynamo.config.disable)"
    if symbolic_trace.is_fx_symbolic_tracing():
        return "torch.fx traces the call"
    if _len_torch_dispatch_stack():
        return "a torch dispatch mode is active"
    if code is None:
        return "it has no Python frame that Dynamo could be shown"
    if trace_rules.check(code):
        return "Dynamo passes over the file that it is in"
    return None


def twin(function: Any) -> Any:
    """The same function with a code object of its own; None for what is no plain function or method."""
    if isinstance(function, types.MethodType) and isinstance(function.__func__, types.FunctionType):
        inside = twin(function.__func__)
        return None if inside is None else types.MethodType(inside, function.__self__)
    if not isinstance(function, types.FunctionType):
        return None
    made = types.FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__dict__.update(function.__dict__)
    made.__qualname__, made.__module__ = function.__qualname__, function.__module__
    return made
