"""A short campaign, the same every time; and what longer ones have found, run again."""

from __future__ import annotations

import pathlib

import pytest

from anyshape.fuzz import known, worker
from anyshape.fuzz.case import Case, loads
from anyshape.fuzz.generate import generate
from anyshape.fuzz.oracle import Target, judge

SEED = 100
SHORT, LONG = 150, 600  # the short one takes about two minutes
REGRESSIONS = (pathlib.Path(__file__).parent / "regressions.jsonl").read_text().splitlines()


def campaign(start: int, stop: int, target: Target) -> None:
    found = []
    for number, case in zip(range(start, stop), generate(SEED, start, stop), strict=True):
        verdict = judge(case, target)
        if verdict.kind is None:
            continue
        if known.name(case, worker.static_difference(case, target, verdict.call)) is None:
            found.append(f"program {number}: {verdict.kind}, {verdict.text}\n{case.source}{case.calls}")
    assert not found, "\n".join(found)


def test_a_short_campaign_finds_nothing() -> None:
    campaign(0, SHORT, Target())


@pytest.mark.slow
def test_a_longer_campaign_finds_nothing_wrong() -> None:
    campaign(SHORT, LONG, Target(economy=False))


@pytest.mark.slow
def test_a_campaign_with_inductor_finds_nothing_wrong() -> None:
    campaign(0, 50, Target(backend="inductor", economy=False))


@pytest.mark.parametrize("case", [pytest.param(loads(line), id=loads(line).fingerprint) for line in REGRESSIONS])
def test_what_was_found_before_holds(case: Case) -> None:
    verdict = judge(case, Target())
    assert verdict.kind is None, f"{verdict.text}\n{case.source}"
