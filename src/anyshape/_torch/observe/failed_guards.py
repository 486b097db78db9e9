"""All guards that a call failed: Dynamo's guard trees walked leaf by leaf.

Owns the walk over Dynamo's guard trees. torch itself stops at the first failure of each; here each leaf is asked on
its own, with the value it is about, so nothing is compiled, kept or changed. Guards of anyshape are not asked: theirs
answer by verifying, which leaves traces.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import linecache
import os
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from anyshape.doctor import guard_text
from anyshape.doctor.events import Reason
from anyshape.doctor.guard_text import TensorFacts

TORCH_FOLDER = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_OURS = "__anyshape"  # how guards of anyshape are named; see `capture_scope.GUARD_NAME`
_LIBRARY = sysconfig.get_paths()["stdlib"] + os.sep
_SKIPPED = ("G['__builtins_dict", "G['__import_", "G['_", "___")
_MOST = 64  # reasons kept for one program: a model with a thousand changed buffers needs no more to be understood


def failed(entry: Any, frame_locals: Mapping[str, Any], stacks: Mapping[str, Sequence[Any]]) -> list[Reason]:
    """The reasons for which the program of a cache entry does not serve a frame with these locals."""
    manager = entry.guard_manager
    name = str(entry.compile_id)
    gone = getattr(manager, "invalidation_reason", None)
    if gone is not None:  # its guards went with what they were about
        return [Reason(name, "invalidated", str(gone))]
    scope = Scope(manager, frame_locals)
    found: list[Reason] = []
    for node in _nodes(manager.root):
        found += _of_node(name, node, scope, stacks)
        if len(found) >= _MOST:
            break
    for leaf in manager.root.get_epilogue_lambda_guards():
        found += [_located(r, stacks) for p in leaf.verbose_code_parts() for r in _of_part(name, p, scope)]
    if not found and not _is_ours(manager):
        debug = manager.check_verbose(frame_locals)
        parts = [] if debug.result else list(debug.verbose_code_parts)
        found = [_counted(_located(guard_text.reason(name, part), stacks), scope) for part in parts[:_MOST]]
        if debug.result:
            found = [Reason(name, "backend", "the program was compiled by another backend or another torch.compile")]
    found = [_of_one_object(r, frame_locals) if r.kind == "aliasing" and not r.source else r for r in found]
    if all(reason.file for reason in found):
        return found
    # A bound that torch puts on every size names no line; the first use of the tensor does.
    places = _first_uses(manager.root, stacks)
    return [r if r.file else _with(r, **_place(r.source, places)) for r in found]


class Scope:
    """The names that a guard's text is written in, with the values of one call."""

    def __init__(self, manager: Any, frame_locals: Mapping[str, Any]) -> None:
        self._globals = dict(manager.global_scope or {})  # a copy: evaluating adds to it
        self._locals = {"L": frame_locals, "G": self._globals.get("G", {}), **(manager.closure_vars or {})}

    def value(self, text: str) -> Any:
        return self._locals["L"] if text == "L" else eval(_code(text), self._globals, self._locals)


@functools.lru_cache(8192)
def _code(text: str) -> types.CodeType:
    return compile(text, "<guard>", "eval")


def pinned(reason: Reason, file: str, line: int, code: str) -> Reason:
    """The reason at the line that fixed the size, rather than at the tensor's first use."""
    guard = f"{reason.source}.size()[{reason.dim}] == {reason.expected}"
    return _with(reason, kind="shape", guard=guard, file=file, line=line, code=code)


def count(guarded_code: Any) -> int:
    """How many guards a compiled frame has."""
    with contextlib.suppress(Exception):
        root = guarded_code.guard_manager.root
        lambdas = sum(len(g.verbose_code_parts()) for g in root.get_epilogue_lambda_guards())
        return lambdas + sum(len(node.get_leaf_guards()) for node in _nodes(root))
    return 0


def facts(value: torch.Tensor) -> TensorFacts:
    """What a tensor is, without asking anything that computes."""
    strided = value.layout is torch.strided
    return TensorFacts(
        type=type(value).__name__,
        dtype=str(value.dtype),
        requires_grad=bool(value.requires_grad),
        size=tuple(int(n) for n in value.shape),
        stride=tuple(int(n) for n in value.stride()) if strided else (),
        device=str(value.device),
    )


def resolve(file: str) -> str:
    """The file that torch means by a shortened name: it leaves out the folders that a file shares with torch's."""
    if not file or os.path.isabs(file) or file.startswith("<"):
        return file
    modules = (getattr(m, "__file__", None) for m in list(sys.modules.values()))
    known = dict.fromkeys(k for k in (*linecache.cache, *modules) if isinstance(k, str))
    inside = TORCH_FOLDER + file
    if os.path.exists(inside):
        return inside
    return next((k for k in known if os.path.isabs(k) and _shortened(k) == file), file)


@functools.lru_cache(16384)
def _shortened(file: str) -> str:
    """What torch makes of a file's name in its messages; under `/` alone it takes a letter too many."""
    try:
        return file[len(os.path.commonpath([file, TORCH_FOLDER])) + 1 :]
    except ValueError:  # another drive
        return file


def is_torchs(file: str) -> bool:
    return file.startswith((TORCH_FOLDER, "<frozen"))


def users_frame(stack: Sequence[Any]) -> Any:
    """The innermost frame of the user's own code; in installed packages only, the innermost outside torch."""
    outside = [frame for frame in stack if not is_torchs(frame.filename)]
    own = [frame for frame in outside if not _is_installed(frame.filename)]
    return own[-1] if own else outside[-1] if outside else None


def _is_installed(file: str) -> bool:
    return "site-packages" in file or "dist-packages" in file or file.startswith(_LIBRARY)


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for child in node.get_child_managers():
        yield from _nodes(child)
    pairs = getattr(node, "get_key_value_managers", None)
    for key, value in (pairs() if pairs is not None else {}).values():
        for child in (key, value):
            if child is not None:
                yield from _nodes(child)


def _first_uses(root: Any, stacks: Mapping[str, Sequence[Any]]) -> dict[str, tuple[str, int, str]]:
    """The line that first made torch look at each source."""
    places: dict[str, tuple[str, int, str]] = {}
    for node in _nodes(root):
        for leaf in node.get_leaf_guards():
            for part in leaf.verbose_code_parts()[:1]:
                frame = users_frame(stacks.get(part, ()))
                if frame is not None:
                    place = (frame.filename, frame.lineno or 0, (frame.line or "").strip())
                    places.setdefault(node.get_source(), place)
    return places


def _place(source: str, places: Mapping[str, tuple[str, int, str]]) -> dict[str, Any]:
    """The first use of a source, or of something in it."""
    inside = (place for name, place in places.items() if source and source in name)
    place = places.get(source) or next(inside, None)
    return {} if place is None else {"file": place[0], "line": place[1], "code": place[2]}


def _counted(reason: Reason, scope: Scope) -> Reason:
    """A container with the length that it has now."""
    if reason.kind == "length" and reason.actual is None and reason.source:
        with contextlib.suppress(Exception):
            return _with(reason, actual=len(scope.value(reason.source)))
    return reason


def _of_one_object(reason: Reason, frame_locals: Mapping[str, Any]) -> Reason:
    """With the names of the arguments that are one tensor now."""
    names: dict[int, list[str]] = {}
    for name, value in frame_locals.items():
        if isinstance(value, torch.Tensor):
            names.setdefault(id(value), []).append(name)
    same = next((found for found in names.values() if len(found) > 1), [])
    return _with(reason, source=", ".join(f"L[{name!r}]" for name in same))


def _of_node(name: str, node: Any, scope: Scope, stacks: Mapping[str, Sequence[Any]]) -> list[Reason]:
    leaves = [leaf for leaf in node.get_leaf_guards() if callable(leaf)]  # those that compare arguments keep a state
    source = node.get_source()
    if not leaves or source.startswith(_SKIPPED):
        return []
    try:
        value = scope.value(source)
    except Exception:
        return []  # what holds it has a guard of its own, and that one failed
    found: list[Reason] = []
    for leaf in leaves:
        with contextlib.suppress(Exception):
            if "LAMBDA" in type(leaf).__name__ and any(_OURS in part for part in leaf.verbose_code_parts()):
                continue
            if leaf(value):
                continue
            # A mark that is missing has a part for each kind of mark.
            text = next(iter(leaf.verbose_code_parts()), type(leaf).__name__)
            found += [_located(r, stacks, text) for r in _described(name, text, value)]
    return found


def _described(name: str, text: str, value: Any) -> list[Reason]:
    """The reasons in one failed leaf: a tensor can differ in several ways at once."""
    expectation = guard_text.tensor_expectation(text)
    base = guard_text.reason(name, text, actual=_shown(value))
    if base.kind == "global_state":
        return [_with(base, actual=guard_text.state_changes(text, _settings()) or None)]
    if expectation is None or not isinstance(value, torch.Tensor):
        if expectation is not None:
            return [_with(base, kind="type", source=expectation[0], expected=expectation[1].type)]
        if base.kind == "length":
            with contextlib.suppress(TypeError):
                return [_with(base, actual=len(value))]
        return [base]
    source, expected = expectation
    actual = facts(value)
    differences = guard_text.tensor_differences(expected, actual)
    if not differences:
        return [_with(base, kind="keys", source=source, expected="the dispatch keys of before", actual=actual.device)]
    guard = guard_text.split(text).guard
    return [
        _with(base, kind=kind, source=source, dim=dim, expected=want, actual=got, guard=guard)
        for kind, dim, want, got in differences
    ]


def _of_part(name: str, part: str, scope: Scope) -> list[Reason]:
    """A relation between sizes, as Python: asked here on its own."""
    guard = guard_text.split(part).guard
    if _OURS in guard:
        return []
    try:
        if scope.value(guard) is not False:
            return []
    except Exception:
        return []
    sizes = guard_text.size_sources(guard)
    actual: list[Any] = []
    for source, dim in sizes:
        with contextlib.suppress(Exception):
            actual.append(int(scope.value(source).shape[dim]))
    found = guard_text.reason(name, part, actual=actual[0] if len(actual) == 1 else actual or None)
    if found.kind == "value" and found.actual is None:
        with contextlib.suppress(Exception):
            return [_with(found, actual=_shown(scope.value(found.source)))]
    if found.kind == "offset":
        with contextlib.suppress(Exception):
            return [_with(found, actual=int(scope.value(found.source).storage_offset()))]
    return [found]


def _located(reason: Reason, stacks: Mapping[str, Sequence[Any]], text: str = "") -> Reason:
    """With the user's own line, where the stack is known."""
    frame = users_frame(stacks.get(text, ()))
    if frame is not None:
        return _with(reason, file=frame.filename, line=frame.lineno or 0, code=(frame.line or "").strip())
    file = resolve(reason.file)
    inside = is_torchs(file)
    return _with(reason, file=file, asked_by="framework" if inside else reason.asked_by)


def _with(reason: Reason, **changes: Any) -> Reason:
    return dataclasses.replace(reason, **changes)


def _is_ours(manager: Any) -> bool:
    return any(
        _OURS in part for leaf in manager.root.get_epilogue_lambda_guards() for part in leaf.verbose_code_parts()
    )


def _settings() -> str:
    """What torch guards of its own settings, as it writes it down."""
    with contextlib.suppress(Exception):
        return str(torch._C._dynamo.guards.GlobalStateGuard().__getstate__())
    return ""


def _shown(value: Any) -> Any:
    if isinstance(value, bool | int | float | str | types.NoneType):
        return value if not isinstance(value, str) else value[:200]
    if isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
        return str(value)
    return type(value).__name__
