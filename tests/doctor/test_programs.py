"""Programs with one disease each, and programs without: the right finding, a remedy that works as it is written, no trace left."""

from __future__ import annotations

import collections
import pathlib

import pytest
from harness import CASES, Case, as_variables, count_graphs, observed, run_here

from anyshape.declaration import spec_file
from anyshape.doctor import edits, trials, writing
from anyshape.doctor.findings import Remedy

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


@pytest.mark.parametrize("case", DISEASED, ids=NAMES)
def test_the_remedy_that_is_offered_works(case: Case, tmp_path: pathlib.Path) -> None:
    """Both ways: the doctor says that it helps, and the program made so, with no doctor there, compiles less.

    A finding without such a remedy says that there is none.
    """
    before = run_here(case.path)
    report, written = trials.verify(before, lambda remedies: run_here(case.path, remedies), write=True)
    assert report.findings[0].remedy.kind == case.words[3], str(report)
    for finding in report.findings[:5]:
        assert finding.tried
        if not finding.remedy.applicable:
            assert finding.trial is None and not finding.others
            continue
        assert finding.trial is not None and finding.trial.outputs in ("equal", "unknown")
        for remedy in (finding.remedy, *finding.others):
            check(case, remedy, tmp_path, finding.code)
    if written:
        check(case, Remedy("declared", "", toml=writing.text(written)), tmp_path, report.findings[0].code)
    assert bool(written) == any(r.toml for f in report.findings if f.tried for r in (f.remedy, *f.others))


def check(case: Case, remedy: Remedy, folder: pathlib.Path, code: str = "") -> None:
    """The program with the remedy pasted or written: what torch and anyshape count, and what is printed."""
    stock = count_graphs(case.path)
    path = folder / case.path.name
    path.write_text(edits.apply(case.path.read_text(), remedy.edits))
    if remedy.toml:
        (folder / spec_file.FILE_NAME).write_text(remedy.toml)
    with as_variables([remedy]):
        cured = count_graphs(path, declared=bool(remedy.toml), folder=folder)
    fewer = cured.programs < stock.programs + stock.failures
    if code in trials.CURED:  # what ends a graph is gone: there may be as many programs, but they are whole
        with as_variables([remedy]):
            still = [f.code for f in observed(path)[0].findings] if not remedy.toml else []
        fewer = cured.programs <= stock.programs + stock.failures and code not in still
    assert fewer, f"{remedy.text}: {stock} and {cured}"
    assert cured.error is None
    if stock.error is None:
        assert cured.printed == stock.printed


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_the_doctor_leaves_no_trace(case: Case) -> None:
    assert observed(case.path)[1] == count_graphs(case.path)


def test_the_tables_of_several_findings_are_one_text(tmp_path: pathlib.Path) -> None:
    one = '["m:f"]\ncompile = true\nshapes = { a = "a_0 _" }'
    other = '["m:f"]\ncompile = true\nshapes = { a = "_ a_1", b = "b_0" }'
    path, changed = writing.write([one, other], tmp_path / spec_file.FILE_NAME)
    assert changed == ["m:f"] and path.read_text().strip() == writing.text([one, other])
    assert spec_file.read(path).entries[0].words["shapes"] == {"a": "a_0 a_1", "b": "b_0"}
