"""What the doctor has to say about a run.

Owns the `Report`: the findings, the compilations they come from, the calls and the programs, as JSON of a published
schema and as text. Knows nothing of torch.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from anyshape import plain_text
from anyshape.doctor import diagnosis, guard_text
from anyshape.doctor.events import (
    Calls,
    Code,
    Compilation,
    EagerCalls,
    End,
    Event,
    GraphBreak,
    ProgramMade,
    Reason,
    Run,
    Trouble,
)
from anyshape.doctor.findings import Finding, Subject, Trial
from anyshape.foundation import local_files

SCHEMA: Final = "anyshape-doctor-1"
_SHOWN = 8
_LARGEST_SOURCE: Final = 16 << 20  # bytes
_UNTRIED: Final = "not tried yet: --verify runs the program with it and compares"
_SOURCES: Final = (".py", ".pyi", ".pyw")
_EXCERPT = 3  # lines before and after the one that matters


@dataclasses.dataclass(frozen=True)
class Report:
    """A run, judged. Print it, or take `.json()`."""

    run: Run
    findings: tuple[Finding, ...]
    compilations: tuple[Compilation, ...]
    graph_breaks: tuple[GraphBreak, ...] = ()
    calls: tuple[Calls, ...] = ()
    eager: tuple[EagerCalls, ...] = ()
    code: tuple[Code, ...] = ()
    programs: tuple[ProgramMade, ...] = ()
    end: End | None = None
    problems: tuple[str, ...] = ()
    trial: Trial | None = None  # the best run with remedies
    tried: int = 0

    @classmethod
    def of(cls, events: Iterable[Event], problems: Sequence[str] = ()) -> Report:
        """The report on these events."""
        listed = list(events)
        troubles = [e.text for e in listed if isinstance(e, Trouble)]
        return cls(
            run=next((e for e in listed if isinstance(e, Run)), Run()),
            findings=diagnosis.diagnose(listed),
            compilations=tuple(sorted((e for e in listed if isinstance(e, Compilation)), key=lambda c: c.start)),
            graph_breaks=tuple(e for e in listed if isinstance(e, GraphBreak)),
            calls=tuple(e for e in listed if isinstance(e, Calls)),
            eager=tuple(e for e in listed if isinstance(e, EagerCalls)),
            code=tuple(e for e in listed if isinstance(e, Code)),
            programs=tuple(e for e in listed if isinstance(e, ProgramMade)),
            end=next((e for e in reversed(listed) if isinstance(e, End)), None),
            problems=tuple([*problems, *dict.fromkeys(troubles)][:100]),
        )

    @property
    def compiles(self) -> int:
        """Programs made: stock torch's compilations that gave one, and anyshape's programs."""
        return sum(c.outcome == "compiled" for c in self.compilations if c.by == "stock") + len(self.programs)

    @property
    def failed(self) -> int:
        """Compilations that ended in an error."""
        return sum(c.outcome == "failed" for c in self.compilations)

    @property
    def refused(self) -> int:
        """Compilations that the recompile limit refused."""
        return sum(c.outcome == "limit" for c in self.compilations)

    @property
    def eager_calls(self) -> int:
        """Calls that ran eagerly: after the limit, or because anyshape had no program for them."""
        return sum(e.count for e in self.eager)

    @property
    def seconds(self) -> float:
        return sum(c.seconds for c in self.compilations)

    @property
    def lost(self) -> float:
        """Seconds that findings account for."""
        return sum(f.seconds for f in self.findings)

    @property
    def call_count(self) -> int:
        return sum(c.count for c in self.calls)

    def json(self) -> dict[str, Any]:
        """The report as values that `json.dumps` takes; the form is `schemas/doctor-report-1.json`."""
        return {
            "schema": SCHEMA,
            "run": dataclasses.asdict(self.run),
            "summary": {
                "compiles": self.compiles,
                "seconds": round(self.seconds, 6),
                "seconds_lost": round(self.lost, 6),
                "failed": self.failed,
                "refused": self.refused,
                "calls": self.call_count,
                "eager_calls": self.eager_calls,
                "graph_breaks": len(self.graph_breaks),
                "findings": len(self.findings),
                "ended": "unknown" if self.end is None else self.end.how,
            },
            "findings": [f.json() for f in self.findings],
            "compilations": [dataclasses.asdict(c) for c in self.compilations],
            "graph_breaks": [dataclasses.asdict(b) for b in self.graph_breaks],
            "calls": [dataclasses.asdict(c) for c in self.calls],
            "eager_calls": [dataclasses.asdict(e) for e in self.eager],
            "code": [dataclasses.asdict(c) for c in self.code],
            "programs": [dataclasses.asdict(p) for p in self.programs],
            "trial": None if self.trial is None else dataclasses.asdict(self.trial),
            "problems": list(self.problems),
        }

    def write_json(self, path: str | os.PathLike[str]) -> None:
        pathlib.Path(path).write_text(json.dumps(self.json(), indent=1, default=repr) + "\n", encoding="utf-8")

    def write_html(self, path: str | os.PathLike[str]) -> None:
        from anyshape.doctor import page

        pathlib.Path(path).write_text(page.render(self), encoding="utf-8", errors="backslashreplace")

    def _repr_html_(self) -> str:
        """The findings in a notebook; the whole page is `write_html`."""
        from anyshape.doctor import page

        return page.fragment(self)

    def __str__(self) -> str:
        lines = [self.headline()]
        for number, finding in enumerate(self.findings[:_SHOWN], 1):
            first, *rest = described(finding)
            lines += ["", f"{number}. {first}", *(f"   {line}" for line in rest)]
        if len(self.findings) > _SHOWN:
            lines += ["", f"and {len(self.findings) - _SHOWN} more; --json and --html have all of them"]
        if self.trial is not None:
            lines += ["", f"with remedies: {proof(self.trial)}"]
        lines += [f"not read: {p}" for p in self.problems[:5]]
        return plain_text.lines("\n".join(lines))

    def headline(self) -> str:
        made = f"{count(self.compiles, 'program')} compiled in {self.seconds:.2f} s"
        made += f", {count(self.failed, 'compilation')} failed" if self.failed else ""
        made += f", {self.refused} refused at the recompile limit" if self.refused else ""
        made += f", {count(self.call_count, 'call')} served"
        made += f", {count(self.eager_calls, 'call')} ran eagerly" if self.eager_calls else ""
        if not self.findings:
            return f"no finding: {made}"
        return f"{count(len(self.findings), 'finding')}, {self.lost:.2f} s lost: {made}"

    def print(self) -> None:
        """In color where rich is installed, else plain; to the error stream, since the other one is the program's."""
        import sys

        try:
            from rich.console import Console
            from rich.text import Text
        except ImportError:
            print(self, file=sys.stderr)
            return
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        styles = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}
        console.print(Text(self.headline(), style="bold"))
        for number, finding in enumerate(self.findings[:_SHOWN], 1):
            first, *rest = described(finding)
            console.print()
            console.print(Text(f"{number}. {first}", style=styles[finding.disease.severity]))
            for line in rest:
                console.print(
                    Text(f"   {line}", style="green" if line.startswith(("remedy:", "proved:", "or:")) else "")
                )
        tail = str(self).splitlines()
        for line in tail[-6:]:
            if line.startswith(("and ", "with remedies:", "not read:")):
                console.print(Text(line))


def described(finding: Finding) -> list[str]:
    """A finding in lines: what, where, what changed, what it cost, what to do."""
    subject = f" ({finding.subject})" if finding.argument else ""
    lines = [f"{finding.code} {finding.disease.title}{subject}", f"where:  {place(finding.file, finding.line)}"]
    source = finding.source_line or next(
        (t.strip() for n, t in excerpt(finding.file, finding.line) if n == finding.line), ""
    )
    if source:
        lines.append(f"        {source}")
    lines += [f"values: {text}" for text in values(finding)]
    lines.append(f"why:    {finding.detail}")
    lines.append(f"cost:   {cost(finding)}")
    lines += remedy_lines(finding)
    if finding.trial is not None:
        lines.append(f"{'tried: ' if finding.trial.slower else 'proved:'} {proof(finding.trial)}")
    for other in finding.others if finding.tried else ():
        lines += [f"or:     {other.text}", *(f"        {line}" for line in other.toml.splitlines())]
    return [plain_text.lines(line) for line in lines]  # a trace is a stranger's


def values(finding: Finding) -> list[str]:
    """The values that were seen, of each thing that changed."""
    if not finding.about:
        return [", ".join(str(v) for v in finding.values[:12])] if finding.values else []
    single = len(finding.about) == 1
    texts = [(s.text, ", ".join(str(v) for v in s.values[:12])) for s in finding.about[:_SHOWN] if s.values]
    return [shown if single else f"{name}: {shown}" for name, shown in texts]


def cost(finding: Finding) -> str:
    """What it cost, in compilations and in calls."""
    if finding.code == "D130":
        text = f"{count(finding.compiles, 'compilation')} of {finding.function} refused"
    else:
        text = f"{finding.seconds:.2f} s in {count(finding.compiles, 'compilation')} of {finding.function}"
    return text + (f"; {count(finding.eager_calls, 'call')} ran eagerly" if finding.eager_calls else "")


def remedy_lines(finding: Finding) -> list[str]:
    """What to do: proved, to be tried, or said to be nothing that can be done automatically."""
    remedy = finding.remedy
    if not remedy.applicable:
        return [f"remedy: no automatic remedy; {remedy.text}"]
    word = "remedy:" if finding.tried else "to try:"
    lines = [f"{word} {remedy.text}", *(f"        {line}" for line in remedy.toml.splitlines())]
    return lines if finding.tried else [*lines, f"        ({_UNTRIED})"]


def proof(trial: Trial) -> str:
    """A trial in a line."""
    counts = f"{count(trial.compiles_before, 'program')} before, {trial.compiles_after} with it"
    seconds = f"{trial.seconds_before:.2f} s of compiling before, {trial.seconds_after:.2f} s with it"
    outputs = {"equal": "outputs equal", "different": "OUTPUTS DIFFER"}.get(trial.outputs, "outputs not compared")
    eager = f", {trial.eager_before} eager calls before, {trial.eager_after} with it" if trial.eager_before else ""
    slower = "; compiling took longer here" if trial.slower else ""
    return f"{counts}, {seconds}{eager}, {outputs}{slower}" + (f" ({trial.detail})" if trial.detail else "")


def change(reason: Reason) -> str:
    """What a call lacked for a program, in a few words: `x.shape[0]: 8 -> 9`."""
    name = guard_text.argument(reason.source) or reason.kind
    where = Subject(name, reason.dim, (), "stride" if reason.kind == "stride" else "shape").text
    if reason.kind == "shape":
        return f"{where} is {reason.actual}, and {guard_text.readable(reason.guard)} does not hold"
    if reason.kind == "aliasing":
        return f"does not hold now: {guard_text.readable(reason.guard)}"
    return f"{where}: {reason.expected} -> {reason.actual}"


def place(file: str, line: int) -> str:
    """file:line, relative where the file lies under the working directory."""
    try:
        relative = os.path.relpath(file) if os.path.isabs(file) else file
    except OSError:  # the working directory is gone
        relative = ".."
    return f"{file if relative.startswith('..') else relative}:{line}"


def excerpt(file: str, line: int) -> list[tuple[int, str]]:
    """The lines around one, with their numbers; none where the file cannot be read.

    Of source alone: a trace may name any file of its reader's, and a report is for others to see.
    """
    if not file.endswith(_SOURCES):
        return []
    try:
        lines = local_files.read(file, most=_LARGEST_SOURCE).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    start = max(1, line - _EXCERPT)
    return [(n, lines[n - 1]) for n in range(start, min(len(lines), line + _EXCERPT) + 1)]


def by_program(report: Report) -> Mapping[str, int]:
    """Calls served, by compile id."""
    found: dict[str, int] = {}
    for calls in report.calls:
        found[calls.id] = found.get(calls.id, 0) + calls.count
    return found


def count(number: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
