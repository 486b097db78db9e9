"""From events to findings.

Owns the judgement: which of the reasons of a recompile is the cause, which disease it is, and what belongs to one
finding. Knows events and the text of guards; nothing of torch.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anyshape.doctor import guard_text, remedies
from anyshape.doctor.events import Compilation, Event, GraphBreak, Reason
from anyshape.doctor.findings import Finding

_BRANCH = re.compile(r"^\s*(if|elif|while|assert)\b|\bif\b.*\belse\b|[<>!=]=|[<>]")
_DDE = re.compile(r"data-dependent (expression|branching)|GuardOnDataDependent|PendingUnbackedSymbol", re.IGNORECASE)
_EXPRESSION = re.compile(r"data-dependent expression (?P<expr>[^\n]*?)(?: \(unhinted|\n|$)")
_CAUSED = re.compile(r"Caused by: (?P<where>[^\n]*)")
_SYMBOL = re.compile(r"\b[uszf]\d+\b")
_STRIDED = re.compile(r"\b(empty_strided|as_strided)\s*\(")
_LAYOUT = re.compile(r"\.(is_contiguous|stride|is_non_overlapping_and_dense|storage_offset|dim_order)\s*\(")
_OUT = re.compile(r"\bout\s*=")
_RESUMED = "torch_dynamo_resume_in_"
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

    @property
    def key(self) -> tuple[Any, ...]:
        """What makes two causes one finding. Where torch itself bounds a size, the line is only that of some use."""
        where = self.frame if self.code in ("D101", "D102") else (self.file, self.line)
        return self.code, where, self.source, self.dim


def diagnose(events: Iterable[Event]) -> tuple[Finding, ...]:
    """The findings of a run, the worst first."""
    listed = list(events)
    compilations = sorted((e for e in listed if isinstance(e, Compilation)), key=lambda c: c.start)
    breaks = [e for e in listed if isinstance(e, GraphBreak)]
    found: dict[tuple[Any, ...], list[tuple[Cause, Compilation, float]]] = collections.defaultdict(list)
    dde_lines = _breaks(breaks, compilations, found)
    repeated = _repeated(compilations)
    for compilation in compilations:
        causes = _causes(compilation, repeated)
        if compilation.outcome == "limit":
            values = tuple(v for cause in causes for v in cause.values)
            causes = [dataclasses.replace(_of_limit(compilation, causes), values=values), *causes]
        elif compilation.outcome == "failed":
            failure = _of_failure(compilation)
            seen = (failure.file, failure.line) in dde_lines and failure.code != "D123"
            causes = [failure] if not seen else []
        for cause in causes:
            found[cause.key].append((cause, compilation, compilation.seconds / len(causes)))
    return tuple(sorted((_finding(group) for group in found.values()), key=lambda f: f.rank))


def _finding(group: Sequence[tuple[Cause, Compilation, float]]) -> Finding:
    cause, compilation, _ = group[0]
    ids = tuple(dict.fromkeys(c.id for _, c, _ in group))
    values = tuple(dict.fromkeys(v for c, _, _ in group for v in c.values))
    finding = Finding(
        code=cause.code,
        file=cause.file,
        line=cause.line,
        source_line=cause.source_line,
        function=compilation.qualname or compilation.name,
        argument=guard_text.argument(cause.source),
        dim=cause.dim,
        values=values[:32],
        seconds=round(sum(seconds for _, _, seconds in group), 6),
        compiles=len(ids),
        detail=cause.detail,
        remedy=remedies.ADVICE,
        asked_by=cause.asked_by,
        ids=ids[:64],
    )
    first, *others = remedies.propose(finding, cause.source, compilation)
    return dataclasses.replace(finding, remedy=first, others=tuple(others))


# -- recompiles ------------------------------------------------------------------------------------------------


def _causes(compilation: Compilation, repeated: set[tuple[Any, ...]]) -> list[Cause]:
    """What made this compilation necessary: the reasons of the program that came nearest to serving the call."""
    causes = [_classify(reason, compilation, repeated) for reason in _nearest(compilation)]
    return list({cause.key: cause for cause in causes}.values())


def _nearest(compilation: Compilation) -> list[Reason]:
    by_entry: dict[str, list[Reason]] = collections.defaultdict(list)
    for reason in compilation.reasons:
        by_entry[reason.entry].append(reason)
    if not by_entry:
        return []
    essential = {entry: _essential(reasons) for entry, reasons in by_entry.items()}
    return essential[min(essential, key=lambda entry: (len(essential[entry]), -_number(entry)))]


def _essential(reasons: Sequence[Reason]) -> list[Reason]:
    """Without those that only follow from others: strides from sizes, a type from a tensor that is another kind."""
    sized = {r.source for r in reasons if r.kind in ("size", "shape", "rank")}
    typed = {r.source for r in reasons if r.kind == "tensor_type"}
    lengths = [r.source for r in reasons if r.kind == "length"]
    kept = []
    for reason in reasons:
        follows = (
            (reason.kind == "stride" and reason.source in sized)
            or (reason.kind in ("type", "keys", "marks") and reason.source in typed | sized)
            or (reason.kind == "keys" and len(reasons) > 1)
            or (reason.kind != "length" and any(reason.source.startswith(f"{s}[") for s in lengths))
        )
        if not follows:
            kept.append(reason)
    return kept or list(reasons)


def _repeated(compilations: Sequence[Compilation]) -> set[tuple[Any, ...]]:
    """Sizes that the nearest program refused more than once for being a number: being told once did not help."""
    counts: collections.Counter[tuple[Any, ...]] = collections.Counter()
    for c in compilations:
        sizes = [r for r in _nearest(c) if r.kind in ("size", "shape") and not _small(r)]
        counts.update(
            {(c.file, c.line, c.name, r.source, r.dim) for r in sizes if r.kind == "size" or " == " in r.guard}
        )
    return {key for key, count in counts.items() if count > 1}


def _small(reason: Reason) -> bool:
    return reason.expected in (0, 1) or reason.actual in (0, 1)


def _classify(reason: Reason, compilation: Compilation, repeated: set[tuple[Any, ...]]) -> Cause:
    code, detail = _disease(reason, compilation, repeated)
    values = (reason.expected, reason.actual) if reason.kind not in ("shape", "stride", "item") else ()
    if reason.kind == "stride" and reason.dim is not None and not isinstance(reason.expected, str):
        values = (reason.expected, reason.actual)
    if reason.kind == "shape":
        values = tuple(reason.actual) if isinstance(reason.actual, list | tuple) else (reason.actual,)
    file, line, code_line = reason.file, reason.line, reason.code
    if not file:
        file, line, code_line = compilation.file, compilation.line, ""
    shown = tuple(_plain(v) for v in values if v is not None)
    return Cause(
        code,
        file,
        line,
        code_line,
        reason.source,
        reason.dim,
        shown,
        detail,
        reason.asked_by,
        (compilation.file, compilation.line),
    )


def _disease(reason: Reason, compilation: Compilation, repeated: set[tuple[Any, ...]]) -> tuple[str, str]:
    """The code for one reason, and a sentence."""
    name = guard_text.argument(reason.source)
    change = f"{reason.expected!r} before" + ("" if reason.actual is None else f", {reason.actual!r} now")
    again = (compilation.file, compilation.line, compilation.name, reason.source, reason.dim) in repeated
    if reason.kind in ("shape", "size", "stride"):
        if _STRIDED.search(reason.code):
            return "D140", f"strides are asked about: {guard_text.readable(reason.guard)}"
        if _LAYOUT.search(reason.code) and reason.kind != "size":
            return "D141", f"a layout property is asked for: {guard_text.readable(reason.guard)}"
    if reason.kind == "size":
        if _small(reason):
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
        ) else f"not so: {guard_text.readable(reason.guard)}"
    if reason.kind == "item":
        return ("D104" if _BRANCH.search(reason.code) else "D107"), f"not so now: {guard_text.readable(reason.guard)}"
    if reason.kind == "rank":
        return "D114", f"{reason.expected} dims before, {reason.actual} now"
    if reason.kind in ("dtype", "keys", "device"):
        return ("D108" if reason.kind == "dtype" else "D114"), change
    if reason.kind in ("requires_grad", "global_state"):
        return (
            "D109",
            change if reason.kind == "requires_grad" else "grad mode, autocast or another global state changed",
        )
    if reason.kind in ("tensor_type", "type"):
        kinds = {str(reason.expected).split(".")[-1].strip("'<>"), str(reason.actual)}
        held = guard_text.is_global(reason.source) or "." in name
        if kinds <= _TENSOR_KINDS or not held:
            return ("D112" if kinds <= _TENSOR_KINDS else "D114"), change
    if reason.kind == "length":
        return "D113", f"length {change}" if reason.actual is not None else guard_text.readable(reason.guard)
    if reason.kind == "aliasing":
        return "D114", "two arguments are now one tensor, or no longer are"
    if guard_text.is_global(reason.source) or _root(reason.source) in compilation.freevars:
        return "D111", change
    if re.match(r"^L\[[^\]]*\](\[[^\]]*\])*\.", reason.source):
        return "D110", change
    if reason.kind == "value" and reason.source:
        return "D107", change
    return "D114", guard_text.readable(reason.guard) if reason.kind == "backend" or not reason.source else change


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
        return "D101", f"not so at {reason.actual}: {guard_text.readable(reason.guard)}"
    return "D103", f"not so now: {guard_text.readable(reason.guard)}"


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | bool | str) else str(value)


def _is_buffer(name: str, code: str) -> bool:
    found = re.search(r"\bout\s*=\s*(?P<what>\([^)]*\)|[\w.]+)", code)
    return bool(found and re.search(rf"\b{re.escape(name.split('[')[0])}\b", found["what"]))


def _root(source: str) -> str:
    found = re.match(r"^[LG]\[(['\"])(.+?)\1\]", source)
    return found[2] if found else ""


def _number(entry: str) -> int:
    tail = entry.rpartition("/")[2]
    return int(tail) if tail.isdigit() else 0


# -- what ends a graph, or a compilation ------------------------------------------------------------------------


def _breaks(
    breaks: Sequence[GraphBreak],
    compilations: Sequence[Compilation],
    found: dict[tuple[Any, ...], list[tuple[Cause, Compilation, float]]],
) -> set[tuple[str, int]]:
    """Findings for graph breaks; given back are the lines of those that are DDEs."""
    by_id = {(c.pid, c.id): c for c in compilations}
    lines: set[tuple[str, int]] = set()
    for broken in breaks:
        compilation = by_id.get((broken.pid, broken.id))
        if compilation is None:
            compilation = Compilation(broken.id, "", broken.file, broken.line, broken.time, 0.0, pid=broken.pid)
        cause = _of_text(broken.reason, broken.file, broken.line, broken.code, symbols=broken.symbols)
        if cause.code in ("D120", "D121", "D140", "D141"):
            lines.add((cause.file, cause.line))
        # What follows a break is compiled on its own; that is what it costs.
        resumed = [
            c for c in compilations if c.name.startswith(_RESUMED) and (c.file, c.line) == (broken.file, broken.line)
        ]
        first = broken is next(b for b in breaks if (b.file, b.line) == (broken.file, broken.line))
        found[cause.key].append((cause, compilation, sum(c.seconds for c in resumed) if first else 0.0))
    return lines


def _of_failure(compilation: Compilation) -> Cause:
    text = compilation.error
    places = re.findall(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in [^\n]*(?:\n\s+(?P<code>[^\n]*))?', text)
    outside = [p for p in places if "/torch/" not in p[0]]
    users = [p for p in outside if "site-packages" not in p[0]] or outside
    file, line, code = users[-1] if users else (compilation.file, str(compilation.line), "")
    return _of_text(text, file, int(line), code.strip(), symbols=compilation.symbols, failed=True)


def _of_text(text: str, file: str, line: int, code: str, *, symbols: Mapping[str, str], failed: bool = False) -> Cause:
    headline = _headline(text)
    if _DDE.search(text) is None:
        return Cause("D123" if failed else "D122", file, line, code, "", None, (), headline)
    expression = _EXPRESSION.search(text)
    caused = _CAUSED.search(text)
    where = caused["where"] if caused else ""
    asked_by = "user" if "in evaluate_expr" in where or "variables/tensor.py" in where or not where else "framework"
    detail = f"not known: {expression['expr'].strip()}" if expression else headline
    if _STRIDED.search(code):
        disease = "D140"
    elif _LAYOUT.search(code):
        disease = "D141"
    else:
        disease = "D120" if asked_by == "user" else "D121"
    values = (expression["expr"].strip(),) if expression else ()
    # A size of an argument, where the symbol is one; else a value that was computed, which has no name.
    named = [symbols[s] for s in _SYMBOL.findall(values[0] if values else " ".join(symbols)) if s in symbols]
    source, dim = next(iter(guard_text.size_sources(named[0]) if named else []), ("", None))
    return Cause(disease, file, line, code, source, dim, values, detail, asked_by)


def _of_limit(compilation: Compilation, causes: Sequence[Cause]) -> Cause:
    best = causes[0] if causes else None
    if best is None:
        return Cause("D130", compilation.file, compilation.line, "", "", None, (), _headline(compilation.error))
    detail = f"the cause is {best.code}: {best.detail}"
    return dataclasses.replace(best, code="D130", detail=detail)


def _headline(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith("Encountered graph break") and len(lines) > 1:
        lines = lines[1:]
    return lines[0][:300] if lines else ""
