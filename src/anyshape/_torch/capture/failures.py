"""Errors of a capture: whether to run eagerly, for which reason, or whose error it is.

Owns what is made of an error that comes out of one: whether the call runs eagerly, for which reason, and which errors
are the traced function's own.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import torch._dynamo.config as dynamo_config
import torch._dynamo.exc as dynamo_exc
from torch._inductor.exc import InductorError

from anyshape._torch.repairs import registry
from anyshape._torch.repairs.registry import repair
from anyshape._torch.symbolic.shape_env import SHARE_MEMORY


class Retrace(BaseException):
    """Capture again, with the sizes of the call as they are. Not an Exception, so that nothing on the way keeps it."""


@contextlib.contextmanager
def keeping_failures() -> Iterator[list[Exception]]:
    """What Dynamo makes nothing of but a frame that it skips for good."""
    kept: list[Exception] = []
    with registry.entered("attempt", kept=kept):
        yield kept


@repair(
    "torch._dynamo.convert_frame:ConvertFrameAssert.__call__",
    scope="attempt",
    phase="capture",
    kind="meaning",
    apart=False,
    symptom="Why a frame is not compiled is not known, and it is skipped for good.",
    cause="convert_frame.py:ConvertFrame.__call__ keeps the errors of ConvertFrameAssert to itself.",
    cure="They are written down.",
    goes="when Dynamo hands on why it skips a frame",
)
def convert_frame_assert(stock: Any, *, kept: list[Exception]) -> Any:
    def convert(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return stock(self, *args, **kwargs)
        except Exception as error:
            kept.append(error)
            raise

    return convert


def runs_eagerly(error: BaseException, *, fullgraph: bool, torchs_backend: bool) -> bool:
    """Whether a failed capture says something about this call (eager raises, or can do it), not the set-up."""
    if _is_asked_for(error, fullgraph=fullgraph):
        return False
    if isinstance(error, _BACKEND_ERRORS):
        return torchs_backend and not fullgraph
    if fullgraph and isinstance(error, dynamo_exc.Unsupported):
        return was_raised(error)
    return isinstance(error, Exception)


def _is_asked_for(error: BaseException, *, fullgraph: bool) -> bool:
    """Whether torch was told to raise this: on a recompile, what is replayed or forbidden, a graph break in some lines.

    Where nothing was asked for, Dynamo lets no graph break out (convert_frame.py, `ConvertFrame.__call__`).
    """
    if isinstance(error, dynamo_exc.RecompileError):
        return True
    if isinstance(error, AssertionError) and str(error).startswith(_FORBIDDEN):
        return True
    if _REPLAYED in str(error) and getattr(dynamo_config, "side_effect_replay_policy", "") == "error":
        return True
    return not fullgraph and isinstance(error, (dynamo_exc.Unsupported, dynamo_exc.UserError)) and not was_raised(error)


def was_raised(error: BaseException) -> bool:
    """Whether a failed capture is what the traced function raises."""
    return isinstance(error, dynamo_exc.Unsupported) and str(error).startswith(_RAISED)


def data_branch(error: BaseException) -> tuple[str, str] | None:
    """Where the user's own code branches on a value that the graph computes, and on what; None for other errors."""
    text = str(error)
    asked = re.search(r"data-dependent expression (.+?) \(unhinted", text)
    if not isinstance(error, dynamo_exc.UserError) or asked is None:
        return None
    places = re.findall(r'File "([^"]+)", line (\d+), in', text)
    return ":".join(places[-1]) if places else "?:0", asked[1]


_REPLAYED = "we found certain side effects happened"  # output_graph.py, `codegen_suffix`
_FORBIDDEN = "Attempt to trace forbidden callable"  # symbolic_convert.py: `forbid_in_graph`, of `set_stance` say
_RAISED = "Observed exception"  # Dynamo's title for what the traced program raises and does not catch itself
_BACKEND_ERRORS = (dynamo_exc.BackendCompilerFailed, InductorError)


def reason(error: BaseException) -> str:
    """Why a call runs eagerly, in a line."""
    if isinstance(error, Retrace):
        return str(error) or "no program holds at these sizes"
    if SHARE_MEMORY in str(error):
        return "inputs that share memory are written to"
    raised = re.search(r"raised exception (.+)", str(error)) if was_raised(error) else None
    if raised is not None:
        return f"the function raises {raised[1]}"[:300]
    inner = getattr(error, "inner_exception", error)
    lines = [line.strip() for line in str(inner).splitlines() if line.strip()]
    if lines and lines[0] == _FAKE_CALL:
        return _of_a_fake_call(str(inner))
    return f"{type(inner).__name__}: {lines[0] if lines else ''}"[:300]


_FAKE_CALL = "RuntimeError when making fake tensor call"


def _of_a_fake_call(text: str) -> str:
    """Which operator fails at these sizes and numbers, how, and in which line of the function."""
    call = re.search(r"fake tensors: call_\w+ (.+?)\(\*", text)
    said = re.search(r"got (\w+\(.*)", text) or re.search(r"Explanation: (.+)", text)
    lines = re.findall(r'File "(.+?)", line (\d+), in .+(?:\n\s+(.+))?', text.partition("from user code")[2])
    file, line, source = lines[-1] if lines else ("?", "0", "")
    what = call[1] if call else source.strip() or "an operator"
    return f"{what} fails: {said[1][:200] if said else _FAKE_CALL}, at {file}:{line}"[:400]
