"""Forty-seven programs with one disease each and twenty without: the right finding, a remedy that proves itself, no trace left."""

from __future__ import annotations

import collections
import pathlib

import pytest
from harness import CASES, Case, count_graphs, observed, run_here

from anyshape import spec_file
from anyshape.doctor import launch, writing

DISEASED = [c for c in CASES if not c.healthy]
HEALTHY = [c for c in CASES if c.healthy]
NAMES = lambda case: case.name


def test_there_are_enough_programs() -> None:
    assert len(DISEASED) >= 40 and len(HEALTHY) >= 20
    codes = collections.Counter(c.words[0] for c in DISEASED)
    assert min(codes.values()) >= 2, f"one program for a disease is an anecdote: {codes}"


@pytest.mark.parametrize("case", DISEASED, ids=NAMES)
def test_the_right_disease_comes_first(case: Case) -> None:
    code, argument, dim, _ = case.words
    report = observed(case.path)[0]
    assert not report.problems
    first = report.findings[0]
    assert first.code == code, str(report)
    assert (first.file, first.line) == (str(case.path), case.line)
    assert first.argument == argument.replace("-", "") or argument == "-"
    if code != "D105":  # which of the strides differs first is not the point of a layout
        assert first.dim == (None if dim == "-" else int(dim))
    assert first.seconds >= 0 and first.remedy.text


@pytest.mark.parametrize("case", HEALTHY, ids=NAMES)
def test_nothing_is_found_in_a_healthy_program(case: Case) -> None:
    report = observed(case.path)[0]
    assert report.compiles >= 1
    assert not report.findings, str(report)
    assert not report.problems


@pytest.mark.parametrize("case", [c for c in DISEASED if c.words[3] != "advice"], ids=NAMES)
def test_the_remedy_proves_itself(case: Case) -> None:
    before = run_here(case.path)
    report = launch.verify(before, lambda remedies: run_here(case.path, remedies))
    first = report.findings[0]
    assert first.trial is not None, str(report)
    assert first.trial.outputs in ("equal", "unknown")
    assert first.remedy.kind == case.words[3], str(report)


@pytest.mark.parametrize("case", DISEASED, ids=NAMES)
def test_declarations_can_be_read(case: Case, tmp_path: pathlib.Path) -> None:
    findings = observed(case.path)[0].findings
    path, changed = writing.write(findings, tmp_path / spec_file.FILE_NAME)
    tables = [r.toml for f in findings for r in (f.remedy, *f.others) if r.toml]
    assert bool(changed) == bool(tables)
    if changed:
        assert [e.target for e in spec_file.read(path).entries] == changed


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_the_doctor_leaves_no_trace(case: Case) -> None:
    assert observed(case.path)[1] == count_graphs(case.path)
