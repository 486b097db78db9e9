"""What to do about a finding.

Owns the proposals: for each disease the things that may help, the best first. Each is one way of doing it (a variable
of the environment, an edit of the code at hand, tables of `anyshape.toml`) and is tried in that very way. Knows nothing
of torch.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from anyshape.doctor import edits, guard_text
from anyshape.doctor.edits import Edit
from anyshape.doctor.events import Compilation
from anyshape.doctor.findings import Finding, Remedy, Subject

ADVICE: Final = Remedy("advice", "")
DYNAMIC: Final = "TORCH_COMPILE_DYNAMIC_SOURCES"
UNBACKED: Final = "TORCH_COMPILE_UNBACKED_SOURCES"
_IDENTIFIER = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_FLAGS: Final[Mapping[str, str]] = {
    "Dynamic shape operator": "capture_dynamic_output_shape_ops",
    "Tensor.item()": "capture_scalar_outputs",
    "capture_scalar_outputs": "capture_scalar_outputs",
}
Frames = Sequence[Compilation]


def offered(finding: Finding, frames: Frames) -> Finding:
    """The finding with its remedies; `frames` are all compilations of the functions that have it."""
    first, *others = propose(finding, frames)
    return dataclasses.replace(finding, remedy=first, others=tuple(others))


def propose(finding: Finding, frames: Frames) -> list[Remedy]:
    """Remedies in the order in which they should be tried. Never empty: the last one is what a person can do."""
    make = _PROPOSALS.get(finding.code)
    proposals = make(finding, frames) if make is not None and frames else []
    if any(f.by == "anyshape" for f in frames):
        proposals = [p for p in proposals if p.kind in ("contiguous", "plain", "config")]
    return [*proposals, advice(finding)]


def advice(finding: Finding) -> Remedy:
    """What a person can do, in the words of the disease."""
    text = finding.disease.advice
    if finding.code == "D107" and finding.values and all(type(v) in (int, float) for v in finding.values):
        text = (
            "if it is only used in arithmetic, pass it as a tensor; as the count of a loop, each value needs a program"
        )
    if finding.code == "D110" and finding.argument.endswith("training"):
        text = "one program for train() and one for eval() is what torch needs"
    elif finding.code == "D110" and finding.argument and not finding.argument.startswith("self"):
        text = "pass the value as an argument of the function, as a tensor if it is only computed with"
    return Remedy("advice", text)


# -- the ways --------------------------------------------------------------------------------------------------


def environment(variable: str, subjects: Sequence[Subject]) -> list[Remedy]:
    """A variable that torch reads, naming the sources as torch does."""
    named = [s for s in subjects if s.source and not guard_text.is_handed_on(s.source)]
    sources = [s.source if s.dim is None else f"{s.source}:{s.dim}" for s in named]
    value = ",".join(dict.fromkeys(sources))
    return [Remedy("environment", f'export {variable}="{value}"', settings=((variable, value),))] if value else []


def with_anyshape(finding: Finding, frames: Frames) -> list[Remedy]:
    """Compile the same function with anyshape: by an edit, or by `anyshape.toml` without touching the code."""
    found = []
    sites = dict.fromkeys((f.compile_file, f.compile_line) for f in frames if f.compile_file)
    changes = [edits.with_anyshape(*site) for site in sites]
    if changes and all(changes):
        found.append(_edit("anyshape", [e for change in changes for e in change]))
    tables = dict.fromkeys(table(finding, frame) for frame in frames)
    if tables and all(tables):
        text = "put this into anyshape.toml, and run with `anyshape run` instead of `python`"
        found.append(Remedy("declared", text, toml=merged(tables)))
    return found


def table(finding: Finding, frame: Compilation) -> str:
    """A table of `anyshape.toml` that compiles the callable and names the dims that vary; empty without a name."""
    name, module = frame.root or frame.qualname or frame.name, frame.root_module or frame.module
    if not _IDENTIFIER.fullmatch(name) or not _IDENTIFIER.fullmatch(module):
        return ""
    lines = [f'["{module}:{name}"]', "compile = true"]
    if _is_root(frame):
        shapes = _shapes(finding, frame)
        if shapes:
            items = ", ".join(f"{_key(a)} = {_quoted(shape)}" for a, shape in shapes.items())
            lines.append(f"shapes = {{ {items} }}")
        names = dict.fromkeys(s.argument for s in finding.about if _IDENTIFIER.fullmatch(s.argument))
        if finding.code == "D105" and names:
            items = ", ".join(f'{_key(n)} = "any"' for n in names)
            lines.append(f"layout = {{ {items} }}")
    return "\n".join(lines)


def merged(tables: Sequence[str] | Mapping[str, None]) -> str:
    """Tables of several callables as one text, each callable once."""
    by_header: dict[str, str] = {}
    for text in tables:
        by_header.setdefault(text.splitlines()[0], text)
    return "\n\n".join(by_header.values())


def at_the_call(kind: str, template: str, finding: Finding, frames: Frames) -> list[Remedy]:
    """An edit of the arguments where the compiled function is called; nothing where the calls are not found."""
    changes: list[Edit] = []
    names = {s.argument for s in finding.about}
    calls = {(f.call_file, f.call_span): f for f in frames if _is_root(f)}
    for (file, span), frame in calls.items():
        positions = [p for p in frame.parameters if p != "self"]
        for name in names:
            if name not in positions:
                return []
            change = edits.argument(file, span, positions.index(name), name, template)
            if not change:
                return []
            changes += change
    return [_edit(kind, changes)] if changes else []


def flag(name: str, frames: Frames) -> list[Remedy]:
    """A switch of torch, set where the function is compiled."""
    files = dict.fromkeys(f.compile_file for f in frames if f.compile_file)
    changes = [edits.after_imports(file, f"torch._dynamo.config.{name} = True") for file in files]
    return [_edit("config", [e for c in changes for e in c])] if changes and all(changes) else []


def _edit(kind: str, changes: Sequence[Edit]) -> Remedy:
    """An edit in words, file by file."""
    by_file: dict[str, list[Edit]] = {}
    for change in dict.fromkeys(changes):
        by_file.setdefault(change.file, []).append(change)
    texts = [edits.said(found, f"{file.replace(chr(92), '/').rpartition('/')[2]} ") for file, found in by_file.items()]
    return Remedy(kind, "; ".join(texts), edits=tuple(e for found in by_file.values() for e in found))


# -- by disease ------------------------------------------------------------------------------------------------


def _dynamic(finding: Finding, frames: Frames) -> list[Remedy]:
    return [*environment(DYNAMIC, finding.about), *with_anyshape(finding, frames)]


def _zero_one(finding: Finding, frames: Frames) -> list[Remedy]:
    return [*environment(UNBACKED, finding.about), *with_anyshape(finding, frames)]


def _layout(finding: Finding, frames: Frames) -> list[Remedy]:
    return [*at_the_call("contiguous", "{}.contiguous()", finding, frames), *with_anyshape(finding, frames)]


def _parameter(finding: Finding, frames: Frames) -> list[Remedy]:
    return at_the_call("plain", "{}[...]", finding, frames)  # a view: a Tensor through which gradients reach it


def _value(finding: Finding, frames: Frames) -> list[Remedy]:
    if not _numbers(finding):
        return []
    return [*environment(DYNAMIC, finding.about), *with_anyshape(finding, frames)]


def _attribute(finding: Finding, frames: Frames) -> list[Remedy]:
    if not _numbers(finding):
        return []
    return [*flag("allow_unspec_int_on_nn_module", frames), *with_anyshape(finding, frames)]


def _graph_break(finding: Finding, frames: Frames) -> list[Remedy]:
    found = [name for text, name in _FLAGS.items() if text in finding.detail]
    return [*(flag(found[0], frames) if found else []), *with_anyshape(finding, frames)]


_PROPOSALS: Final[Mapping[str, Callable[[Finding, Frames], list[Remedy]]]] = {
    "D101": _zero_one,
    "D102": _dynamic,
    "D103": with_anyshape,
    "D105": _layout,
    "D106": with_anyshape,
    "D107": _value,
    "D110": _attribute,
    "D111": _value,
    "D112": _parameter,
    "D115": with_anyshape,
    "D116": with_anyshape,
    "D120": with_anyshape,
    "D121": with_anyshape,
    "D122": _graph_break,
    "D140": with_anyshape,
    "D141": with_anyshape,
}


def _numbers(finding: Finding) -> bool:
    """Whether all values seen are numbers: those can be made free."""
    values = [v for s in finding.about for v in s.values]
    return bool(values) and all(type(v) in (int, float) for v in values)


def _is_root(frame: Compilation) -> bool:
    """Whether the frame is that of the callable itself, so that its arguments are those of the call."""
    return not frame.root or frame.root == (frame.qualname or frame.name)


def _shapes(finding: Finding, frame: Compilation) -> dict[str, str]:
    """The dims of each argument: a name for those that vary, `_` for the others."""
    varied: dict[str, set[int]] = {}
    for subject in finding.about:
        if subject.dim is not None and subject.what == "shape" and _IDENTIFIER.fullmatch(subject.argument):
            varied.setdefault(subject.argument, set()).add(subject.dim)
    found: dict[str, str] = {}
    for argument, dims in varied.items():
        described = re.search(r"\[(?P<sizes>[\d, ]*)\]", frame.arguments.get(argument, ""))
        rank = len([s for s in described["sizes"].split(",") if s.strip()]) if described is not None else 0
        if max(dims) < rank:
            name = argument.rpartition(".")[2]
            found[argument] = " ".join(f"{name}_{i}" if i in dims else "_" for i in range(rank))
    return found


def _key(argument: str) -> str:
    return argument if re.fullmatch(r"\w+", argument) else _quoted(argument)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
