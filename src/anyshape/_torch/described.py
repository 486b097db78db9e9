"""What the observer says of torch's objects: a frame's arguments, a graph's inputs, the symbols of a trace, who called.

Owns reading them without computing, keeping or changing anything. When they are read is `observe`'s.
"""

from __future__ import annotations

import os
import sys
import types
from typing import Any

import torch

from anyshape._torch import failed_guards

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
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
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not failed_guards.is_torchs(file) and not file.startswith(_OURS) and not _is_library(file):
            return file, frame.f_lineno
        frame = frame.f_back
    return "", 0


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
