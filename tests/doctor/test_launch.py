"""How two runs are compared, and which remedy is kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from anyshape.doctor import launch
from anyshape.doctor.events import Compilation, Event, Reason, Result, Run
from anyshape.doctor.findings import Remedy
from anyshape.doctor.launch import Outcome
from anyshape.doctor.report import Report

ONE = Result(0, "torch.float32[4]", "aa", (4.0, 4.0, 1.0))


def outcome(compiles: int, results: Sequence[Result] = (ONE,), status: int = 0) -> Outcome:
    """A run with so many compilations, each for another size."""
    found: list[Event] = [Run()]
    for i in range(compiles):
        reason = Reason(f"0/{i - 1}", "size", "guard", "L['x']", 0, 7 + i, 8 + i, "m.py", 2)
        found.append(
            Compilation(
                f"0/{i}", "f", "m.py", 1, float(i), 0.5, reasons=(reason,) if i else (), dynamic="dynamic=False"
            )
        )
    return Outcome(Report.of(found), tuple(results), status)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ([ONE], [ONE], "equal"),
        ([ONE], [dataclasses.replace(ONE, digest="bb", numbers=(4.00001, 4.00001, 1.0))], "equal"),
        ([ONE], [dataclasses.replace(ONE, digest="bb", numbers=(4.1, 4.1, 1.0))], "different"),
        ([ONE], [dataclasses.replace(ONE, text="torch.float64[4]")], "different"),
        ([ONE], [ONE, ONE], "different"),
        ([], [], "unknown"),
        (
            [dataclasses.replace(ONE, digest="b", numbers=(float("nan"),))],
            [dataclasses.replace(ONE, digest="c", numbers=(float("nan"),))],
            "equal",
        ),
    ],
)
def test_outputs_are_compared(before: list[Result], after: list[Result], says: str) -> None:
    assert launch.same_outputs(before, after) == says


def test_the_first_remedy_that_helps_is_kept() -> None:
    tried: list[str] = []

    def run(remedies: Sequence[Remedy]) -> Outcome:
        tried.append(remedies[0].kind)
        return outcome(5 if remedies[0].kind == "environment" else 1)

    report = launch.verify(outcome(5), run)
    first = report.findings[0]
    assert tried == ["environment", "anyshape"]
    assert first.remedy.kind == "anyshape" and first.trial is not None and report.trial == first.trial
    assert "5 compilations become 1" in str(report) and "outputs equal" in str(report)


@pytest.mark.parametrize(
    "after",
    [outcome(1, [dataclasses.replace(ONE, text="other")]), outcome(1, status=1), outcome(5), outcome(9)],
    ids=["another result", "fails", "as many", "more"],
)
def test_a_remedy_that_does_harm_is_not_proposed(after: Outcome) -> None:
    report = launch.verify(outcome(5), lambda remedies: after)
    assert report.findings[0].remedy.kind == "advice" and report.findings[0].trial is None and report.trial is None


def test_a_run_is_not_made_twice() -> None:
    kinds: list[str] = []

    def run(remedies: Sequence[Remedy]) -> Outcome:
        kinds.append(remedies[0].kind)
        return outcome(5)

    before = outcome(5)
    twice = dataclasses.replace(before.report, findings=before.report.findings * 2)
    launch.verify(Outcome(twice, before.results, 0), run)
    assert kinds == ["environment", "anyshape"]
