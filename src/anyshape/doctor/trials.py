"""Trials of a remedy: the program is run again with it, and has to compile less and give the same outputs.

Owns which remedies are run, in what order, and what counts as help: a run of the program with the remedy made as it is
offered, fewer compilations, the same outputs, and nothing more that runs eagerly. Knows nothing of torch, nor of
processes: a runner makes the runs.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from anyshape.doctor import writing
from anyshape.doctor.events import Result
from anyshape.doctor.findings import Finding, Remedy, Trial
from anyshape.doctor.report import Report, count

_TRIED: Final = 5  # findings that are tried one by one; each costs a run for every remedy
CURED: Final = ("D120", "D121", "D122", "D123", "D130", "D140", "D141")  # cured by going away, not by fewer programs
NO_HELP: Final = "no help"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One run of the program."""

    report: Report
    results: tuple[Result, ...]
    status: int


Runner = Callable[[Sequence[Remedy]], Outcome]
Say = Callable[[str], None]


@dataclasses.dataclass
class _Trials:
    """Runs that were made, each once: two findings with one remedy need one run."""

    before: Outcome
    run: Runner
    say: Say
    most: int
    made: dict[tuple[Any, ...], Outcome] = dataclasses.field(default_factory=dict)

    def of(self, remedies: Sequence[Remedy], finding: Finding | None = None) -> Trial:
        key = tuple(r.key for r in remedies)
        if key not in self.made:
            what = remedies[0].text if len(remedies) == 1 else "all that helped, together"
            self.say(f"trial {len(self.made) + 1} of at most {self.most}: {what}")
            began = time.perf_counter()
            self.made[key] = after = self.run(remedies)
            trial = compare(self.before, after, finding, remedies[0])
            found = "did not help" if trial.detail == NO_HELP else "helped"
            said = f"{found} ({count(after.report.compiles, 'program')}, status {after.status})"
            self.say(f"trial {len(self.made)} took {time.perf_counter() - began:.1f} s and {said}")
        return compare(self.before, self.made[key], finding, remedies[0])


def verify(before: Outcome, run: Runner, *, say: Say | None = None, write: bool = False) -> tuple[Report, list[str]]:
    """The report with, for each of the worst findings, the remedy that helps most; and what may be written to the file.

    With `write` the declaration of each finding is tried as well, also where something else helped before, and all of
    those together: what is written has been run.
    """
    worst = before.report.findings[:_TRIED]
    keys = {r.key for f in worst for r in (f.remedy, *f.others) if r.applicable}
    trials = _Trials(before, run, say or (lambda text: None), len(keys) + (2 if len(keys) > 1 else 0))
    findings = [_tried(f, trials, write) for f in worst]
    found = [f.trial for f in findings if f.trial is not None]
    chosen = _together([f.remedy for f in findings if f.trial is not None])
    if len(chosen) > 1:
        together = trials.of(chosen)
        found += [together] if together.detail != NO_HELP else []
    # Two remedies can get into each other's way: the best is the one to name.
    best = min(found, key=lambda t: (t.compiles_after, t.seconds_after), default=None)
    listed = (*findings, *before.report.findings[_TRIED:])
    report = dataclasses.replace(before.report, findings=listed, trial=best, tried=len(trials.made))
    return report, _to_write(findings, trials) if write else []


def _tried(finding: Finding, trials: _Trials, write: bool) -> Finding:
    """The finding with the remedy that helped, or with what a person can do."""
    helped: list[tuple[Remedy, Trial]] = []
    enough = False
    for remedy in (finding.remedy, *finding.others):
        if not remedy.applicable or (enough and not (write and remedy.toml)):
            continue
        trial = trials.of([remedy], finding)
        if trial.detail != NO_HELP:
            helped.append((remedy, trial))
            enough = enough or not (trial.slower or _remains(trials.made[(remedy.key,)].report, finding))
    if not helped:
        return dataclasses.replace(finding, remedy=_advice(finding, trials.before.report), others=(), tried=True)
    best = min(helped, key=lambda found: (found[1].slower, found[1].compiles_after))
    rest = tuple(r for r, _ in helped if r is not best[0])
    return dataclasses.replace(finding, remedy=best[0], others=rest, trial=best[1], tried=True)


def _advice(finding: Finding, report: Report) -> Remedy:
    """What a person can do, where nothing that was tried helped."""
    found = next((r for r in (finding.remedy, *finding.others) if not r.applicable), finding.remedy)
    if report.refused and finding.code != "D130":
        # As many programs are made as the limit allows, whatever else is cured.
        return dataclasses.replace(found, text=f"first cure what fills the recompile limit (D130); then {found.text}")
    return found


def _together(remedies: Sequence[Remedy]) -> list[Remedy]:
    """Different remedies that can be made at once."""
    different = list({r.key: r for r in remedies}.values())
    # anyshape makes every size free: what torch is told besides would only get in its way.
    ours = any(r.kind in ("anyshape", "declared") for r in different)
    return [r for r in different if not (ours and r.kind == "environment")]


def _to_write(findings: Sequence[Finding], trials: _Trials) -> list[str]:
    """Declarations that helped, all together if that was tried and helped, else the first."""
    helped = [r for f in findings if f.trial is not None for r in (f.remedy, *f.others) if r.toml]
    texts = list(dict.fromkeys(r.toml for r in helped))
    if len(texts) < 2:
        return texts
    merged = Remedy("declared", "all tables of anyshape.toml", toml=writing.text(texts))
    return [merged.toml] if trials.of([merged]).detail != NO_HELP else texts[:1]


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
        eager_before=before.report.eager_calls,
        eager_after=after.report.eager_calls,
    )
    eagerly = trial.eager_after > trial.eager_before  # fewer programs, because nothing is compiled any more
    cured = finding is not None and finding.code in CURED
    failed = after.status != 0 and (cured or _ended(before) != _ended(after))
    gone = finding is not None and cured and not _still(after.report, finding)
    fewer = trial.compiles_after < trial.compiles_before
    if cured and finding is not None and finding.code != "D130":
        fewer = trial.compiles_after <= trial.compiles_before + before.report.failed  # what failed is a program now
    helps = not failed and not eagerly and outputs != "different" and fewer and (gone or not cured)
    return trial if helps else dataclasses.replace(trial, detail=NO_HELP)


def _ended(outcome: Outcome) -> tuple[int, str]:
    """How a program ended: one that fails on purpose does so with the remedy, too."""
    return outcome.status, "" if outcome.report.end is None else outcome.report.end.how


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


def _remains(report: Report, finding: Finding) -> bool:
    """Whether another run still made programs of the function because of the same arguments."""
    names = {s.argument for s in finding.about}
    return any(f.function == finding.function and names & {s.argument for s in f.about} for f in report.findings)


def _still(report: Report, finding: Finding) -> bool:
    """Whether the disease is there in another run; an edit moves lines, so the function tells."""
    return any((f.code, f.function) == (finding.code, finding.function) for f in report.findings)
