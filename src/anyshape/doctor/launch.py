"""Running a program under observation, once or again with remedies.

Owns the child process, what is said while it runs, and the trials that prove a remedy. Knows nothing of torch: the
child does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from anyshape.doctor import event_log, guard_text
from anyshape.doctor.events import Compilation, Event, Reason, Result
from anyshape.doctor.findings import Finding, Remedy, Trial
from anyshape.doctor.report import Report, place

VARIABLE: Final = "ANYSHAPE_DOCTOR"
_CHILD: Final = "from anyshape.observing import child; child()"
_TRIED: Final = 5  # findings that are tried one by one; each costs a run for every remedy
_ALWAYS: Final = ("D120", "D121", "D122", "D123", "D130", "D140", "D141")  # cured by going away, not by fewer programs
_CACHES: Final = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
Runner = Callable[[Sequence[Remedy]], "Outcome"]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One run of the program."""

    report: Report
    results: tuple[Result, ...]
    status: int


@dataclasses.dataclass(frozen=True)
class Program:
    """What is to be run: a script, a module or tests, with its arguments."""

    kind: str  # script | module | pytest
    arguments: tuple[str, ...]

    def run(self, remedies: Sequence[Remedy] = (), *, results: bool = False, say: Callable[[Event], None] | None = None,
            quiet: bool = False) -> Outcome:  # fmt: skip
        """Run it in a process of its own, and read what was seen, however it ended."""
        with _folder() as folder:
            path = folder / "events.jsonl"
            path.touch()
            order = {
                "kind": self.kind,
                "arguments": list(self.arguments),
                "events": str(path),
                "results": results,
                "remedies": [dataclasses.asdict(r) for r in remedies],
            }
            environment = os.environ | {VARIABLE: json.dumps(order)}
            if results:
                # Seconds are compared: what one run left on disk must not help the next.
                environment |= {name: str(folder / name.lower()) for name in _CACHES}
            streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} if quiet else {}
            process = subprocess.Popen([sys.executable, "-c", _CHILD], env=environment, **streams)
            with _patient(process):
                for event in event_log.follow(path, lambda: process.poll() is None, lambda: time.sleep(0.05)):
                    if say is not None:
                        say(event)
            status = process.wait()
            found, problems = event_log.read(path)
        if status < 0:
            problems.append(f"the program was ended by signal {-status}; what it did until then is here")
        report = Report.of(found, problems)
        return Outcome(report, tuple(e for e in found if isinstance(e, Result)), status)


def say_live(event: Event) -> None:
    """One line for each compilation while the program runs."""
    if not isinstance(event, Compilation):
        return
    changed = "; ".join(dict.fromkeys(_change(r) for r in event.reasons[:3]))
    text = f"doctor: {event.outcome} {event.qualname or event.name} [{event.id}] {event.seconds:.2f} s"
    text += f" because {changed}" if changed else f" at {place(event.file, event.line)}"
    try:
        from rich.console import Console
    except ImportError:
        print(text, file=sys.stderr)
    else:
        style = "red" if event.outcome in ("failed", "limit") else "yellow" if changed else "dim"
        Console(stderr=True, highlight=False).print(text, style=style, markup=False, soft_wrap=True)


def _change(reason: Reason) -> str:
    name = guard_text.argument(reason.source) or reason.kind
    where = name if reason.dim is None else f"{name}.shape[{reason.dim}]"
    if reason.kind == "shape":
        return f"{where} is {reason.actual}, and {guard_text.readable(reason.guard)} does not hold"
    return f"{where}: {reason.expected} -> {reason.actual}"


# -- proof -----------------------------------------------------------------------------------------------------


def verify(before: Outcome, run: Runner) -> Report:
    """The report with, for each of the worst findings, the first remedy that helps, and all of those together."""
    findings: list[Finding] = []
    helping: list[Remedy] = []
    tried: dict[tuple[str, Any], Outcome] = {}  # two findings with one remedy need one run

    def attempt(remedy: Remedy) -> Outcome:
        key = (remedy.kind, remedy.settings)
        if key not in tried:
            tried[key] = run([remedy])
        return tried[key]

    for number, finding in enumerate(before.report.findings):
        if number >= _TRIED:
            findings.append(finding)
            continue
        proved: Finding | None = None
        for remedy in (finding.remedy, *finding.others):
            if not remedy.applicable:
                continue
            trial = compare(before, attempt(remedy), finding, remedy)
            if trial.detail != "no help":
                rest = tuple(r for r in (finding.remedy, *finding.others) if r is not remedy)
                proved = dataclasses.replace(finding, remedy=remedy, others=rest, trial=trial)
                helping.append(remedy)
                break
        findings.append(proved or _without_help(finding))
    trials = [f.trial for f in findings if f.trial is not None]
    different = list({(*r.settings, (r.kind, "")): r for r in helping}.values())
    if len(different) > 1:
        # anyshape makes every size free: what torch is told besides would only get in its way.
        ours = [r for r in different if r.kind == "anyshape"]
        others = [r for r in different if r.kind not in ("anyshape", "environment")]
        chosen = [*ours[:1], *others] if ours else different
        together = compare(before, run(chosen), None, chosen[0])
        trials += [together] if together.detail != "no help" else []
    # Two remedies can get into each other's way: the best is the one to name.
    trial_of_all = min(trials, key=lambda t: (t.compiles_after, t.seconds_after), default=None)
    return dataclasses.replace(before.report, findings=tuple(findings), trial=trial_of_all, tried=len(tried))


def compare(before: Outcome, after: Outcome, finding: Finding | None, remedy: Remedy) -> Trial:
    """Two runs side by side; the detail says `no help` where the remedy is none."""
    outputs = same_outputs(before.results, after.results)
    if before.status != 0 and after.status == 0 and outputs == "different":
        outputs = "equal" if _agree(before.results, after.results[: len(before.results)]) else outputs
    trial = Trial(
        remedy.text,
        before.report.compiles,
        after.report.compiles,
        round(before.report.seconds, 6),
        round(after.report.seconds, 6),
        outputs,
    )
    failed = after.status != 0 and before.status == 0
    gone = finding is not None and finding.code in _ALWAYS and not _still(after.report, finding)
    helps = not failed and outputs != "different" and (gone or trial.compiles_after < trial.compiles_before)
    if finding is not None and finding.code in _ALWAYS:
        helps = helps and gone
    return trial if helps else dataclasses.replace(trial, detail="no help")


def same_outputs(before: Sequence[Result], after: Sequence[Result]) -> str:
    """Whether two runs gave the same results: equal, different, or unknown where nothing was recorded."""
    if not before and not after:
        return "unknown"
    return "equal" if len(before) == len(after) and _agree(before, after) else "different"


def _agree(before: Sequence[Result], after: Sequence[Result]) -> bool:
    return all(
        a.text == b.text and (a.digest == b.digest or _near(a.numbers, b.numbers))
        for a, b in zip(before, after, strict=False)
    )


def _near(one: Sequence[float], other: Sequence[float]) -> bool:
    if len(one) != len(other):
        return False
    pairs = zip(one, other, strict=True)
    return all(
        a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-5) for a, b in pairs
    )


def _still(report: Report, finding: Finding) -> bool:
    return any((f.code, f.line) == (finding.code, finding.line) for f in report.findings)


def _without_help(finding: Finding) -> Finding:
    """No remedy that could be tried helped: say what a person can do."""
    advice = [r for r in (finding.remedy, *finding.others) if not r.applicable]
    return dataclasses.replace(finding, remedy=advice[-1], others=()) if advice else finding


@contextlib.contextmanager
def _folder() -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory(prefix="anyshape-doctor-") as folder:
        yield pathlib.Path(folder)


@contextlib.contextmanager
def _patient(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """An interrupt is the program's to handle; the report is still to be written."""
    try:
        yield
    except KeyboardInterrupt:
        process.wait()
