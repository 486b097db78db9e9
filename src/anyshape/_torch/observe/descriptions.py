"""What an observation says of torch's objects: arguments of frames, graph inputs, symbols, callers.

Owns reading them without computing, keeping or changing anything. When they are read is `compilation_hooks`'.
"""

from __future__ import annotations

import inspect
import itertools
import os
import sys
import types
from typing import Any

import torch

import anyshape
from anyshape._torch.observe import failed_guards
from anyshape.declaration import spec_file

_OURS = os.path.dirname(os.path.abspath(anyshape.__file__)) + os.sep
_SHOWN_ARGUMENTS = 32
_SHOWN_INPUTS = 6  # tensors of a call whose sizes are kept


def with_cause(reason: str, error: Any) -> str:
    """The reason, and the error under it: a branch on a size that has no hint names the size only there."""
    cause = getattr(error, "__cause__", None)
    text = str(reason)
    return (text if cause is None or str(cause) in text else f"{text}\n{cause}")[:8000]


def symbols(shape_env: Any) -> dict[str, str]:
    """The sizes of arguments that are symbols in a trace, and what they are sizes of."""
    named = {str(symbol): sources(shape_env, symbol) for symbol in shape_env.var_to_sources}
    found = {symbol: sources[0] for symbol, sources in named.items() if sources}
    # A size that was marked unbacked is only known by the fake tensor that has it.
    for tracked in getattr(shape_env, "tracked_fakes", None) or ():
        name = tracked.source.name
        for dim, size in enumerate(getattr(tracked.fake, "shape", ())):
            if isinstance(size, torch.SymInt):
                found.setdefault(str(size.node.expr), f"{name() if callable(name) else name}.size()[{dim}]")
    return found


def sources(shape_env: Any, symbol: Any) -> list[str]:
    sources = shape_env.var_to_sources.get(symbol, ())
    return [s.name() if callable(s.name) else str(s.name) for s in sources]


def caller() -> tuple[str, int]:
    """The nearest line outside torch and anyshape."""
    return call()[:2]


def call() -> tuple[str, int, tuple[int, ...]]:
    """The nearest line outside torch and anyshape, and the call that is going on in it where Python tells (3.11)."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not failed_guards.is_torchs(file) and not file.startswith(_OURS) and not _is_library(file):
            return file, frame.f_lineno, _span(frame)
        frame = frame.f_back
    return "", 0, ()


def _span(frame: types.FrameType) -> tuple[int, ...]:
    positions = getattr(frame.f_code, "co_positions", None)
    if positions is None:
        return ()
    found = next(itertools.islice(positions(), frame.f_lasti // 2, None), ())
    if len(found) != 4 or None in found:
        return ()
    first, last, column, end = found
    return first, column, last, end


def compiled_in(frame: types.FrameType) -> Any:
    """The function that torch's wrapper around a compiled callable is about to call; None in another frame."""
    code = frame.f_code
    if code.co_name != "compile_wrapper" or not code.co_filename.endswith("eval_frame.py"):
        return None
    return frame.f_locals.get("fn")


def root() -> Any:
    """The function or module that was given to `torch.compile`, whose call is being compiled; None if unknown."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        function = compiled_in(frame)
        if function is not None:
            owner = getattr(function, "__self__", None)
            return owner if isinstance(owner, torch.nn.Module) else function
        frame = frame.f_back
    return None


def code_of(function: Any) -> types.CodeType | None:
    """The code that is compiled first when a function or module is called."""
    owner = getattr(function, "__self__", None)
    module = function if isinstance(function, torch.nn.Module) else owner
    if isinstance(module, torch.nn.Module) and (owner is None or getattr(function, "__name__", "") in _CALLS):
        function = module.forward
    return getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None


_CALLS = ("__call__", "_wrapped_call_impl", "_call_impl")  # what calling a module calls


def qualified(function: Any) -> tuple[str, str]:
    """The module and the qualified name of a function; of a module, those of its class's `forward`."""
    if function is None:
        return "", ""
    named = type(function) if isinstance(function, torch.nn.Module) else inspect.unwrap(function)
    name = str(getattr(named, "__qualname__", ""))
    module = module_name(str(getattr(named, "__module__", "")))
    return module, f"{name}.forward" if isinstance(function, torch.nn.Module) else name


def module_name(name: Any) -> str:
    """A module as `anyshape.toml` may call it: that of the script by the script's name."""
    return spec_file.names_of_main()[0] if name == spec_file.MAIN else str(name or "")


def _is_library(file: str) -> bool:
    return file.startswith("<") or os.path.basename(file) in ("contextlib.py", "runpy.py", "functools.py", "mock.py")


def arguments(frame_locals: dict[str, Any]) -> dict[str, str]:
    """What a frame was called with, in a word each."""
    return {n: _word(v) for n, v in list(frame_locals.items())[:_SHOWN_ARGUMENTS] if not n.startswith("__")}


def _word(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{type(value).__name__} {str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, bool | int | float | str | types.NoneType):
        return repr(value)[:80]
    if isinstance(value, list | tuple | dict | set):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__


def sized_inputs(graph: Any) -> list[tuple[str, int]]:
    """The inputs of a graph whose sizes tell calls apart: tensors that the caller passes, not parameters."""
    found: list[tuple[str, int]] = []
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    for index, node in enumerate(placeholders):
        example = node.meta.get("example_value")
        source = getattr(getattr(node, "_dynamo_source", None), "name", "")
        name = source() if callable(source) else source
        held = "_parameters" in name or "_buffers" in name or isinstance(example, torch.nn.Parameter)
        if isinstance(example, torch.Tensor) and example.dim() and name and not held:
            found.append((name, index))
    return found[:_SHOWN_INPUTS]
