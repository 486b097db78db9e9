"""From events to findings.

Owns the judgement of a run: which of the reasons of a recompile is the cause, what belongs to one finding, and what is
to blame for a limit. What a single reason is, is `causes`'s. Knows events; nothing of torch.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anyshape.doctor import causes, endings, guard_text, remedies
from anyshape.doctor.causes import Cause
from anyshape.doctor.events import RESUMED, Compilation, EagerCalls, Event, GraphBreak, Reason
from anyshape.doctor.findings import Finding, Subject

Entry = tuple[
    Cause, Compilation, float
]  # a cause, the compilation that it made necessary, and its share of the seconds
Found = dict[tuple[Any, ...], list[Entry]]
Frames = Mapping[tuple[Any, ...], list[Compilation]]  # the compilations of each
_MOST_OF_A_FRAME = 256  # compilations that remedies are made from: no limit of torch's allows for more


def diagnose(events: Iterable[Event]) -> tuple[Finding, ...]:
    """The findings of a run, the worst first."""
    listed = list(events)
    compilations = sorted((e for e in listed if isinstance(e, Compilation)), key=lambda c: c.start)
    breaks = [e for e in listed if isinstance(e, GraphBreak)]
    found: Found = collections.defaultdict(list)
    dde_lines = endings.of_breaks(breaks, compilations, found)
    repeated = _repeated(compilations)
    limits: list[tuple[Compilation, list[Cause]]] = []
    for compilation in compilations:
        made = _causes(compilation, repeated, _home(compilation, compilations))
        if compilation.outcome == "limit":
            limits.append((compilation, made))
            continue
        if compilation.outcome == "failed":
            failure = endings.of_failure(compilation)
            seen = (failure.file, failure.line) in dde_lines and failure.code != "D123"
            made = [failure] if not seen else []
        for cause in made:
            found[cause.key].append((cause, compilation, compilation.seconds / len(made)))
    calls = [e for e in listed if isinstance(e, EagerCalls)]
    frames: dict[tuple[Any, ...], list[Compilation]] = collections.defaultdict(list)
    for compilation in compilations:
        if len(frames[_frame(compilation)]) < _MOST_OF_A_FRAME:
            frames[_frame(compilation)].append(compilation)
    findings = [_finding(group, frames) for group in found.values()]
    findings += [_of_limit(group, found, calls, frames) for group in _by_frame(limits).values()]
    return tuple(sorted(findings, key=lambda f: f.rank))


def _frame(compilation: Compilation) -> tuple[Any, ...]:
    return compilation.pid, compilation.file, compilation.line, compilation.name


def _finding(group: Sequence[Entry], frames: Frames) -> Finding:
    cause, compilation, _ = group[0]
    ids = tuple(dict.fromkeys(c.id for _, c, _ in group))
    subjects = _subjects(cause for cause, _, _ in group)
    finding = Finding(
        code=cause.code,
        file=cause.file,
        line=cause.line,
        source_line=cause.source_line,
        function=compilation.function,
        argument=subjects[0].argument if subjects else "",
        dim=subjects[0].dim if subjects else None,
        values=(subjects[0].values if subjects else tuple(dict.fromkeys(v for c, _, _ in group for v in c.values)))[
            :32
        ],
        seconds=round(sum(seconds for _, _, seconds in group), 6),
        compiles=len(ids),
        detail=_detail(group),
        remedy=remedies.ADVICE,
        asked_by=cause.asked_by,
        ids=ids[:64],
        subjects=subjects,
    )
    of = dict.fromkeys(_frame(c) for _, c, _ in group)
    return remedies.offered(finding, sorted((c for frame in of for c in frames[frame]), key=lambda c: c.start))


def _subjects(found: Iterable[Cause]) -> tuple[Subject, ...]:
    """What the causes of a finding are about, each once, with all values that were seen."""
    values: dict[tuple[Any, ...], dict[Any, None]] = {}
    for cause in sorted(found, key=_not_in_the_line):
        seen = values.setdefault(cause.subject, {})
        for value in cause.values:
            seen.setdefault((type(value), value))
    return tuple(
        Subject(guard_text.argument(source), dim, tuple(v for _, v in seen)[:32], what, source)
        for (source, dim, what), seen in values.items()
        if source
    )


def _not_in_the_line(cause: Cause) -> bool:
    """Whether the line does not spell the subject out: where it does, that is what it is about."""
    text = Subject(guard_text.argument(cause.source), cause.dim, (), cause.what).text
    return text not in cause.source_line


def _detail(group: Sequence[Entry]) -> str:
    """Why, once for each thing that changed."""
    first: dict[tuple[Any, ...], Cause] = {}
    for cause, _, _ in group:
        first.setdefault(cause.subject, cause)
    if len(first) < 2:
        return group[0][0].detail
    said = [f"{subject.text}: {first[(subject.source, subject.dim, subject.what)].detail}"
            for subject in _subjects(first.values())]  # fmt: skip
    return "; ".join(said[:6])


# -- the limit -------------------------------------------------------------------------------------------------


def _by_frame(limits: Sequence[tuple[Compilation, list[Cause]]]) -> dict[tuple[Any, ...], list[Any]]:
    found: dict[tuple[Any, ...], list[Any]] = {}
    for compilation, made in limits:
        found.setdefault((compilation.file, compilation.line, compilation.name), []).append((compilation, made))
    return found


def _of_limit(
    group: Sequence[tuple[Compilation, list[Cause]]],
    found: Found,
    calls: Sequence[EagerCalls],
    frames: Frames,
) -> Finding:
    """What is to blame is what made most of the programs that filled the limit, not what the last call lacked."""
    compilation, made = group[0]
    frame = (compilation.file, compilation.line, compilation.name)
    history = collections.Counter(
        {key: len({c.id for _, c, _ in entries if (c.file, c.line, c.name) == frame}) for key, entries in found.items()}
    )
    keys = [cause.key for cause in made] or [key for key, count in history.items() if count]
    blamed = max(keys, key=lambda key: history[key], default=None)
    ids = {(c.pid, c.id.partition("/")[0]) for c, _ in group}
    eager = sum(e.count for e in calls if e.by == "stock" and (e.pid, e.id.partition("/")[0]) in ids)
    entries = [*found.get(blamed or (), ()), *((c, compilation, 0.0) for c in made if c.key == blamed)]
    seconds = round(sum(c.seconds for c, _ in group), 6)
    if not entries:
        cause = Cause("D130", compilation.file, compilation.line, "", "", None, (), endings.headline(compilation.error))
        entries = [(cause, compilation, 0.0)]
    finding = _finding(entries, frames)
    detail = finding.detail if blamed is None else f"the cause is {finding.code}: {finding.detail}"
    return dataclasses.replace(
        finding,
        code="D130",
        function=compilation.function,
        seconds=seconds,
        compiles=len(group),
        detail=detail,
        ids=tuple(c.id for c, _ in group)[:64],
        eager_calls=eager,
    )


# -- which reasons count ---------------------------------------------------------------------------------------


def _causes(compilation: Compilation, repeated: set[tuple[Any, ...]], home: tuple[str, int] | None) -> list[Cause]:
    """What made this compilation necessary: the reasons of the program that came nearest to serving the call."""
    made = [causes.classify(reason, compilation, repeated) for reason in _nearest(compilation)]
    made = [dataclasses.replace(cause, frame=home) for cause in made] if home else made
    return list({(cause.key, cause.subject): cause for cause in made}.values())


def _home(compilation: Compilation, compilations: Sequence[Compilation]) -> tuple[str, int] | None:
    """The function whose rest this is, where it is what follows a graph break: a size of both is one size."""
    part = RESUMED.match(compilation.name)
    if part is None:
        return None
    whole = [c for c in compilations if (c.file, c.name) == (compilation.file, part["name"])]
    lines = [c.line for c in whole if c.line <= compilation.line]
    return (compilation.file, max(lines)) if lines else None


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
        sizes = [r for r in _nearest(c) if r.kind in ("size", "shape") and not causes.small(r)]
        counts.update(
            {(c.file, c.line, c.name, r.source, r.dim) for r in sizes if r.kind == "size" or " == " in r.guard}
        )
    return {key for key, count in counts.items() if count > 1}


def _number(entry: str) -> int:
    tail = entry.rpartition("/")[2]
    return int(tail) if tail.isdigit() else 0
