"""From the reason of a recompile to the disease that it is a symptom of.

Owns the judgement of a single guard that failed. What belongs to one finding is `diagnosis`'s. Knows events and the
text of guards; nothing of torch.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from anyshape.doctor import guard_text
from anyshape.doctor.events import Compilation, Reason

_BRANCH = re.compile(r"^\s*(if|elif|while|assert)\b|\bif\b.*\belse\b|[<>!=]=|[<>]")
STRIDED = re.compile(r"\b(empty_strided|as_strided)\s*\(")
LAYOUT = re.compile(r"\.(is_contiguous|stride|is_non_overlapping_and_dense|storage_offset|dim_order)\s*\(")
_OFFSET = re.compile(r"(?P<tensor>\w+)\.storage_offset\(")
# As an argument, also where it begins the line of a longer call; not as the name that a line assigns to.
_OUT = re.compile(r"[(,]\s*out\s*=(?!=)|^\s*out=(?!=)")
_TENSOR_KINDS = {"Tensor", "Parameter", "Buffer"}


@dataclasses.dataclass(frozen=True)
class Cause:
    """What one reason comes to: the parts of a finding that say which one it is."""

    code: str
    file: str
    line: int
    source_line: str
    source: str
    dim: int | None
    values: tuple[Any, ...]
    detail: str
    asked_by: str = "user"
    frame: tuple[str, int] = ("", 0)
    what: str = "shape"  # of the dim: shape | stride

    @property
    def key(self) -> tuple[Any, ...]:
        """What makes two causes one finding: one disease at one line, with one remedy.

        Where torch itself bounds a size, the line is only that of some use: those of a function are one.
        """
        where = self.frame if self.code in ("D101", "D102") else (self.file, self.line)
        free = self.code in ("D107", "D110", "D111") and all(type(v) in (int, float) for v in self.values)
        return self.code, where, free

    @property
    def subject(self) -> tuple[Any, ...]:
        """What it is about."""
        return self.source, self.dim, self.what


def small(reason: Reason) -> bool:
    return reason.expected in (0, 1) or reason.actual in (0, 1)


def classify(reason: Reason, compilation: Compilation, repeated: set[tuple[Any, ...]]) -> Cause:
    code, detail = _disease(reason, compilation, repeated)
    without = ("shape", "stride", "item", "aliasing", "global_state")
    values = (reason.expected, reason.actual) if reason.kind not in without else ()
    if reason.kind == "stride" and reason.dim is not None and not isinstance(reason.expected, str):
        values = (reason.expected, reason.actual)
    if _is_another_object(reason):
        values = ()
    if reason.kind == "shape":
        values = tuple(reason.actual) if isinstance(reason.actual, list | tuple) else (reason.actual,)
    file, line, code_line = reason.file, reason.line, reason.code
    if compilation.wrapped and compilation.call_file:  # a module of torch's: what its user can change is the call
        file, line, code_line = compilation.call_file, compilation.call_line, ""
    elif not file:
        file, line, code_line = compilation.file, compilation.line, ""
    shown = tuple(_plain(v) for v in values if v is not None)
    return Cause(
        code,
        file,
        line,
        code_line,
        _source(code, reason, compilation),
        reason.dim,
        shown,
        detail,
        reason.asked_by,
        (compilation.file, compilation.line),
        "stride" if reason.kind == "stride" else "shape",
    )


def _source(code: str, reason: Reason, compilation: Compilation) -> str:
    """What it is about, as guards call it."""
    if code == "D116" and guard_text.is_handed_on(reason.source):  # the offset was read before a graph break
        read = _OFFSET.search(reason.code)
        return f"L['{read['tensor']}']" if read else reason.source
    return reason.source.replace("L['fn']", "L['self']") if compilation.wrapped else reason.source


def _disease(reason: Reason, compilation: Compilation, repeated: set[tuple[Any, ...]]) -> tuple[str, str]:
    """The code for one reason, and a sentence."""
    name = guard_text.argument(reason.source)
    change = f"{_said(reason, reason.expected)} before"
    change += "" if reason.actual is None else f", {_said(reason, reason.actual)} now"
    again = (compilation.file, compilation.line, compilation.name, reason.source, reason.dim) in repeated
    if reason.kind in ("shape", "size", "stride"):
        if STRIDED.search(reason.code):
            asked = change if reason.kind == "size" else guard_text.readable(reason.guard)
            return "D140", f"strides are asked about: {asked}"
        if LAYOUT.search(reason.code) and reason.kind != "size":
            return "D141", f"a layout property is asked for: {guard_text.readable(reason.guard)}"
    if reason.kind == "size":
        if small(reason):
            return "D101", change
        if _OUT.search(reason.code) and (again or _is_buffer(name, reason.code)):
            return "D106", change
        # A size that was to be free from the start, or was refused before, did not stay free: something ties it.
        tied = compilation.dynamic == "dynamic=True" or (again and compilation.dynamic != "dynamic=False")
        return ("D103" if tied else "D102"), change
    if reason.kind == "shape":
        return _of_relation(reason, name)
    if reason.kind == "stride":
        return "D105", f"stride {change}" if not isinstance(
            reason.expected, str
        ) else f"does not hold now: {guard_text.readable(reason.guard)}"
    if reason.kind == "item":
        return (
            "D104" if _BRANCH.search(reason.code) else "D107"
        ), f"does not hold now: {guard_text.readable(reason.guard)}"
    if reason.kind == "rank":
        return "D114", f"{reason.expected} dim{'s' * (reason.expected != 1)} before, {reason.actual} now"
    if reason.kind in ("dtype", "keys", "device"):
        return ("D108" if reason.kind == "dtype" else "D114"), change
    if reason.kind == "requires_grad":
        return "D109", change
    if reason.kind == "global_state":
        return _of_settings(str(reason.actual or ""))
    if reason.kind in ("tensor_type", "type"):
        kinds = {_type_name(reason.expected), str(reason.actual)}
        held = guard_text.is_global(reason.source) or "." in name
        if kinds <= _TENSOR_KINDS or not held:
            return ("D112" if kinds <= _TENSOR_KINDS else "D114"), change
    if reason.kind == "length":
        return "D113", f"length {change}" if reason.actual is not None else guard_text.readable(reason.guard)
    if reason.kind == "aliasing":
        same = "one tensor before, and are two now" if " is " in reason.guard else "two tensors before, and are one now"
        at = f" (the call at {_base(compilation.call_file)}:{compilation.call_line})" if compilation.call_file else ""
        return "D115", f"they were {same}{at}"
    if reason.kind == "offset":
        now = "" if reason.actual is None else f", {reason.actual} now"
        return "D116", f"it began at element {reason.expected} of its memory before{now}"
    if reason.kind == "dict_keys":
        return "D114", f"other keys: {change}"
    if guard_text.is_handed_on(reason.source) and _OFFSET.search(reason.code):
        return "D116", f"it began at element {change}"
    if _is_another_object(reason):
        change = "another object than before"
        known = str(reason.expected).startswith("<class ")
        change += f"; both are of type {reason.actual}" if known else f", of type {reason.actual} now"
    closed_over = _root(reason.source) in compilation.freevars and not compilation.wrapped
    if guard_text.is_global(reason.source) or closed_over:
        return "D111", change
    if re.match(r"^L\[[^\]]*\](\[[^\]]*\])*\.", reason.source):
        return "D110", change
    if (reason.kind == "value" or _is_another_object(reason)) and reason.source:
        return "D107", change
    return "D114", guard_text.readable(reason.guard) if reason.kind == "backend" or not reason.source else change


_SETTINGS = {  # as torch calls them
    "grad_mode": "grad mode",
    "autocast": "autocast",
    "default_dtype": "the default dtype",
    "deterministic_algorithms": "deterministic algorithms",
    "num_threads": "the number of threads",
    "torch_function": "a torch function mode",
    "allow_": "the precision of matrix products",
    "cuda_matmul": "the precision of matrix products",
}


def _of_settings(changed: str) -> tuple[str, str]:
    found = dict.fromkeys(words for name, words in _SETTINGS.items() if name in changed)
    if not found:
        return "D117", "grad mode, autocast or another setting of torch changed"
    return "D109" if "grad mode" in found else "D117", f"{' and '.join(found)} changed"


def _of_relation(reason: Reason, name: str) -> tuple[str, str]:
    small = reason.actual in (0, 1) if not isinstance(reason.actual, list | tuple) else bool({0, 1} & {*reason.actual})
    small = small or (reason.actual is None and guard_text.is_zero_one(reason.guard))  # a trace has no values
    if small and re.match(r"^2 <= ", reason.guard):
        return "D101", f"the program was made for sizes of 2 and more: {guard_text.readable(reason.guard)}"
    if _OUT.search(reason.code):
        return "D106", f"the call fixes the size: {guard_text.readable(reason.guard)}"
    if reason.asked_by == "user" and _BRANCH.search(reason.code):
        return "D104", f"this branch went the other way: {guard_text.readable(reason.guard)}"
    if small and not reason.code:
        return "D101", f"does not hold at {reason.actual}: {guard_text.readable(reason.guard)}"
    return "D103", f"does not hold now: {guard_text.readable(reason.guard)}"


def _said(reason: Reason, value: Any) -> str:
    """A value as the code writes it; the name of a dtype or of a class as it is."""
    if not isinstance(value, str):
        return repr(value)
    named = reason.kind not in ("value", "item", "dict_keys") or value.startswith("torch.")
    return value if named else repr(value)


def _is_another_object(reason: Reason) -> bool:
    """An object in the place of another one of its type, as far as the guard says which type that was."""
    known = str(reason.expected).startswith("<class ")  # torch 2.11 writes the object down
    return reason.kind == "identity" and (not known or _type_name(reason.expected) == str(reason.actual))


def _type_name(text: Any) -> str:
    """`<class 'package.Type'>` without its module."""
    return str(text).strip("<>").removeprefix("class ").strip("'").rpartition(".")[2]


def _base(file: str) -> str:
    return file.replace("\\", "/").rpartition("/")[2]


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | bool | str) else str(value)


def _is_buffer(name: str, code: str) -> bool:
    found = re.search(r"\bout\s*=\s*(?P<what>\([^)]*\)|[\w.]+)", code)
    return bool(found and re.search(rf"\b{re.escape(name.split('[')[0])}\b", found["what"]))


def _root(source: str) -> str:
    found = re.match(r"^[LG]\[(['\"])(.+?)\1\]", source)
    return found[2] if found else ""
