"""Parsing the text of Dynamo's guards: which source, which relation, which value.

Owns the forms of that text: a guard with its comment, the expectation of a tensor, the sentence of a failed tensor
check, the name of an argument. The text is all there is in a trace, and the same reading serves a live program.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
from typing import Any

from anyshape.doctor.events import Reason

_HINT = re.compile(r"\s*\(HINT: (?P<hint>.*)\)\s*$", re.DOTALL)
_FRAMEWORK = re.compile(r"\s*\((?P<place>[^()\s]+\.py:\d+) in [^()]+\)\s*$")
_PLACE = re.compile(r"#\s*(?P<file>[^#\n]+?):(?P<line>\d+) in (?P<name>\S+)\s*$")
_CLOSURE = re.compile(r'guard on "(?P<name>[^\W\d]\w*)"(?P<path>[^,]*)')  # how torch names a variable of a closure
_TENSOR = re.compile(
    r"check_tensor\((?P<source>.+?), (?P<type>[\w.]+), DispatchKeySet\((?P<keys>[^)]*)\), (?P<dtype>torch\.\w+), "
    r"device=(?P<device>[^,]*), requires_grad=(?P<grad>True|False), "
    r"size=(?P<size>\[[^\]]*\]), stride=(?P<stride>\[[^\]]*\])"
)
_SIZE = re.compile(r"(?P<source>[LG]\[.+?)\.(?P<what>size|stride)\(\)\[(?P<dim>\d+)\]")
_SENTENCE = re.compile(
    r"tensor '(?P<source>.*?)' "
    r"(?P<what>size|stride|rank|dtype|requires_grad|dispatch key set|device|Tensor device index)"
    r"[^.]*mismatch(?: at index (?P<dim>\d+))?\. expected (?P<expected>.*?)(?:,? actual (?P<actual>.*))?$",
    re.DOTALL,
)
_TYPE_SENTENCE = re.compile(
    r"expected type of '(?P<source>.*?)' to be (?P<expected>.*?),? ?(?:but found|' but found|got) (?P<actual>.*)$",
    re.DOTALL,
)
_VALUE = re.compile(r"^(?P<source>[LG]\[.+?|[^\W\d][\w.\[\]'\"]*) == (?P<value>.+)$", re.DOTALL)
_LENGTH = re.compile(r"^(?:not )?len\((?P<source>.+?)\)(?: [!=]= (?P<value>\d+))?$")
_IDENTITY = re.compile(
    r"^___check_(?P<what>obj|type)_id\((?P<source>.+?), (?P<id>\d+)\)(?:, type=(?P<type>.*))?$", re.S
)
_NUMBER = re.compile(r"-?\d+")
# One object under two names, where it was one before: `L['x'] is L['y']`.
_SAME = re.compile(r"^(?P<one>[LG]\[.+?|[^\W\d]\w*) is (?P<other>(?!not\b|None\b)(?:[LG]\[.+|[^\W\d]\w*))$")
_OFFSET = re.compile(r"(?P<source>[LG]\[.+?\]|[^\W\d]\w*)\.storage_offset\(\)(?: [!=]= (?P<value>\d+))?")
_KEY = re.compile(r"^list\(dict\.keys\((?P<source>.+)\)\)\[\d+\] == (?P<value>.+)$", re.DOTALL)
_BROKEN = re.compile(r"^[LG]\[(['\"])___stack\d+\1\]")  # what Dynamo hands on from before a graph break
FIELDS = {"Tensor device index": "device", "dispatch key set": "keys"}


@dataclasses.dataclass(frozen=True)
class Written:
    """A guard's text taken apart: what is checked, and the line that made torch check it."""

    guard: str
    file: str = ""
    line: int = 0
    code: str = ""
    framework: str = ""
    hint: str = ""


@dataclasses.dataclass(frozen=True)
class TensorFacts:
    """What a tensor is, or what a program expects it to be. None stands for anything."""

    type: str
    dtype: str
    requires_grad: bool
    size: tuple[int | None, ...]
    stride: tuple[int | None, ...]
    device: str | None = None


def split(text: str) -> Written:
    """Take the comment off: `guard  # code  # file:line in name (framework.py:1 in f) (HINT: ...)`."""
    rest = text.strip()
    hint = framework = ""
    if found := _HINT.search(rest):
        hint, rest = found["hint"], rest[: found.start()]
    if found := _FRAMEWORK.search(rest):
        framework, rest = found["place"], rest[: found.start()]
    found = _PLACE.search(rest)
    if found is None:
        return Written(rest.split("  # ")[0].strip(), framework=framework, hint=hint)
    head = rest[: found.start()]
    guard, _, code = head.partition("  # ")
    # A guard with two origins names both, joined by "and"; the later one is the user's.
    code = re.split(r"\)\s+and\s+|:\d+ in \w+\s+and\s+", code)[-1]
    return Written(guard.strip(), found["file"].strip(), int(found["line"]), code.strip(), framework, hint)


def tensor_expectation(guard: str) -> tuple[str, TensorFacts] | None:
    """The source and the expectation of a `check_tensor` guard."""
    found = _TENSOR.search(guard)
    if found is None:
        return None
    facts = TensorFacts(
        type=found["type"].rpartition(".")[2],
        dtype=found["dtype"],
        requires_grad=found["grad"] == "True",
        size=_numbers(found["size"]),
        stride=_numbers(found["stride"]),
        device=None if found["device"] in ("None", "") else found["device"],
    )
    return found["source"], facts


def tensor_differences(expected: TensorFacts, actual: TensorFacts) -> list[tuple[str, int | None, Any, Any]]:
    """Each way in which a tensor is not what was expected: what, which dim, expected, actual."""
    found: list[tuple[str, int | None, Any, Any]] = []
    if expected.type != actual.type:
        found.append(("tensor_type", None, expected.type, actual.type))
    for name in ("dtype", "requires_grad"):
        if getattr(expected, name) != getattr(actual, name):
            found.append((name, None, getattr(expected, name), getattr(actual, name)))
    if len(expected.size) != len(actual.size):
        return [*found, ("rank", None, len(expected.size), len(actual.size))]
    for name in ("size", "stride"):
        pairs = zip(getattr(expected, name), getattr(actual, name), strict=False)
        found += [(name, i, want, got) for i, (want, got) in enumerate(pairs) if want is not None and want != got]
    return found


def reason(entry: str, text: str, *, actual: Any = None) -> Reason:
    """A failed guard, as far as its text tells."""
    written = split(text)
    guard = written.guard
    where: dict[str, Any] = {
        "file": written.file,
        "line": written.line,
        "code": written.code,
        "asked_by": "framework" if _in_framework(written) else "user",
        "framework": written.framework,
    }
    if (sentence := _SENTENCE.search(guard)) is not None:
        kind = FIELDS.get(sentence["what"], sentence["what"].replace(" ", "_"))
        dim = None if sentence["dim"] is None else int(sentence["dim"])
        return Reason(
            entry, kind, guard, _local(sentence["source"]), dim,
            _literal(sentence["expected"]), _literal(sentence["actual"]), **where,
        )  # fmt: skip
    if (sentence := _TYPE_SENTENCE.search(guard)) is not None:
        return Reason(
            entry, "tensor_type", guard, _local(sentence["source"]), None,
            sentence["expected"].strip(" '"), sentence["actual"].strip(" '"), **where,
        )  # fmt: skip
    if "BACKEND_MATCH" in guard:
        return Reason(entry, "backend", guard.split(".")[0], **where)
    if "Duplicate tensor" in guard or "check_no_aliasing" in guard:
        return Reason(entry, "aliasing", guard, ", ".join(_local(n) for n in _duplicates(guard)), **where)
    if (same := _SAME.match(guard)) is not None:
        return Reason(entry, "aliasing", guard, f"{_local(same['one'])}, {_local(same['other'])}", **where)
    if (offset := _OFFSET.search(guard)) is not None:
        expected = offset["value"] and int(offset["value"])
        return Reason(entry, "offset", guard, _local(offset["source"]), None, expected, actual, **where)
    if "_dynamo_" in guard and "_indices" in guard:
        source = re.search(r"(?:hasattr|getattr)?\(?(?P<source>[LG]\[.+?\]|\w+)[,.]", guard)
        return Reason(entry, "marks", guard, source["source"] if source else "", actual=actual, **where)
    if "check_global_state" in guard or "grad_mode" in guard or "GLOBAL_STATE" in guard:
        said = guard.partition("GLOBAL_STATE changed:")[2].strip()  # in a trace
        return Reason(entry, "global_state", guard.split(" against ")[0], actual=said or None, **where)
    named = _closure_name(written.hint)
    if (found := _IDENTITY.search(guard)) is not None:
        kind = "type" if found["what"] == "type" else "identity"
        return Reason(entry, kind, guard, named or _local(found["source"]), None, found["type"], actual, **where)
    if (found := _LENGTH.search(guard)) is not None:
        expected = None if found["value"] is None else int(found["value"])
        return Reason(entry, "length", guard, _local(found["source"]), None, expected, actual, **where)
    if "___dict_contains" in guard or ".keys()" in guard:
        source = re.search(r"(?P<source>[LG]\[.*\])", guard)
        return Reason(entry, "length", guard, source["source"] if source else "", actual=actual, **where)
    if (key := _KEY.match(guard)) is not None:
        about = _local(key["source"])
        return Reason(entry, "dict_keys", guard, about, None, _literal(key["value"]), actual, **where)
    if (read := re.search(r"(?P<source>[LG]\[[^\]]*\][^\s]*)\.item\(\)", guard)) is not None:
        return Reason(entry, "item", guard, f"{read['source']}.item()", None, guard, actual, **where)
    sizes = list(_SIZE.finditer(_localised(guard)))
    if sizes:
        first = sizes[0]
        kind = "shape" if first["what"] == "size" else "stride"
        return Reason(entry, kind, guard, first["source"], int(first["dim"]), guard, actual, **where)
    if (found := re.fullmatch(r"(?P<source>[LG]\[.+?|\w+) is (?:not )?None", guard)) is not None:
        return Reason(entry, "type", guard, _local(found["source"]), None, guard.partition(" is ")[2], actual, **where)
    if (found := _VALUE.search(guard)) is not None:
        about = named or _local(found["source"])
        return Reason(entry, "value", guard, about, None, _literal(found["value"]), actual, **where)
    source = re.search(r"[LG]\[[^\]]*\](?:\[[^\]]*\]|\.\w+)*", guard)
    return Reason(
        entry, "value" if source else "other", guard, source[0] if source else "", None, guard, actual, **where
    )


def state_changes(text: str, now: str) -> str:
    """What a guard on torch's settings was made under, against what they are now: the names of those that differ."""
    before = re.search(r" against (\{.*\})", text)
    try:
        made, here = json.loads(before[1] if before is not None else ""), json.loads(now)
    except ValueError:
        return ""
    return ", ".join(name for name in made if made[name] != here.get(name, made[name]))


def size_sources(guard: str) -> list[tuple[str, int]]:
    """Every size that a guard is about: `L['x'].size()[0] == L['y'].size()[1]` is about two."""
    found = [(m["source"], int(m["dim"])) for m in _SIZE.finditer(_localised(guard)) if m["what"] == "size"]
    return list(dict.fromkeys(found))


def is_zero_one(guard: str) -> bool:
    """Whether a guard does nothing but keep 0 and 1 out: `2 <= L['x'].size()[0]`, also where a branch narrowed it."""
    return re.match(r"^2 <= \S+$|^\S+ >= 2$|^\S+ != [01]$", guard.strip()) is not None


def argument(source: str) -> str:
    """A source in the words of the user: `L['self']._modules['proj']._parameters['weight']` is self.proj.weight."""
    if ", L[" in source or ", G[" in source:  # several that are one object
        return ", ".join(argument(part) for part in re.split(r", (?=[LG]\[)", source))
    text = re.sub(r"\._(?:modules|parameters|buffers)\[(['\"])(\w+)\1\]", r".\2", source)
    text = re.sub(r"\.__dict__\[(['\"])(\w+)\1\]", r".\2", text)
    text = _BROKEN.sub("<value before the graph break>", text)
    text = re.sub(r"^[LG]\[(['\"])(.+?)\1\]", r"\2", text)
    return re.sub(r"\.__closure__\[(\d+)\]\.cell_contents", r" (closure \1)", text)


def readable(guard: str) -> str:
    """A guard in the words of the user: `2 <= L['x'].size()[0]` is 2 <= x.shape[0]."""
    return re.sub(r"\b[LG]\[(['\"])(.+?)\1\]", r"\2", guard).replace(".size()[", ".shape[")


def is_global(source: str) -> bool:
    """Whether a source is read from the module's globals or from a closure, rather than passed in."""
    return source.startswith("G[") or "__closure__" in source or "cell_contents" in source


def is_handed_on(source: str) -> bool:
    """Whether a source is a value that was computed before a graph break: it has no name that a user could write."""
    return _BROKEN.match(source) is not None


def _duplicates(guard: str) -> list[str]:
    """The arguments that torch names: `Duplicate tensors found: ['x', 'y']`, or `check_no_aliasing(L['x'], L['y'])`."""
    inside = re.search(r"check_no_aliasing\((?P<what>.*)\)", guard)
    if inside is not None:
        return [p.strip() for p in inside["what"].split(",") if p.strip()]
    return re.findall(r"'([^']+)'", guard.partition(":")[2])


def _closure_name(hint: str) -> str:
    found = _CLOSURE.search(hint)
    return f"G['{found['name']}']{found['path']}" if found else ""


def _in_framework(written: Written) -> bool:
    return bool(written.framework) and not written.framework.startswith("_dynamo/variables/")


def _local(source: str) -> str:
    """torch prints `x` for `L['x']` in its reasons; put it back."""
    source = source.strip()
    if source.startswith(("L[", "G[")) or not source:
        return source
    head = re.match(r"^[^\W\d]\w*", source)
    return f"L['{head[0]}']{source[head.end() :]}" if head else source


def _localised(guard: str) -> str:
    if "L[" in guard or "G[" in guard:
        return guard
    return re.sub(r"(?<![\w.'])([^\W\d]\w*)((?:\.\w+|\[[^\]]*\])*)\.(size|stride)\(\)", r"L['\1']\2.\3()", guard)


def _numbers(text: str) -> tuple[int | None, ...]:
    return tuple(int(p) if _NUMBER.fullmatch(p.strip()) else None for p in text.strip("[]").split(",") if p.strip())


def _literal(text: str | None) -> Any:
    text = (text or "None").strip()
    if (flag := re.match(r"requires_grad=(\d)", text)) is not None:
        return flag[1] == "1"
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text[:200]
    return value if isinstance(value, int | float | str | bool | type(None)) else text[:200]
