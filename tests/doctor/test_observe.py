"""`anyshape.observe()`: the same from inside a program, bounded, and with nothing left behind."""

from __future__ import annotations

import pathlib
import threading
import time
from typing import Any

import pytest
import torch

import anyshape
from anyshape._torch import observe as seam
from anyshape.doctor import event_log, events
from anyshape.doctor.events import Calls, Compilation, Reason
from anyshape.doctor.findings import Finding, Remedy

pytest_plugins = ["pytester"]


def compiled(**options: Any) -> Any:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    return torch.compile(f, backend="eager", **options)


def test_findings_while_it_runs_and_after() -> None:
    f = compiled()
    with anyshape.observe() as seen:
        f(torch.ones(4))
        assert seen.compiles == 1 and not seen.findings
        f(torch.ones(5))
        assert [x.code for x in seen.findings] == ["D102"]
    f(torch.ones(5, 5))
    assert seen.compiles == 2, "what comes after the block is not seen"
    assert "D102" in str(seen) and "<table>" in seen._repr_html_() and seen.json()["summary"]["compiles"] == 2


def test_hooks_are_undone() -> None:
    before = [getattr(owner, name) for owner, name, _ in seam._HOOKS]
    with anyshape.observe(), anyshape.observe():
        assert [getattr(owner, name) for owner, name, _ in seam._HOOKS] != before
    assert [getattr(owner, name) for owner, name, _ in seam._HOOKS] == before


def test_observers_that_overlap_see_the_same() -> None:
    f = compiled()
    first, second = anyshape.observe(), anyshape.observe()
    one, other = first.__enter__(), second.__enter__()
    f(torch.ones(4))
    first.__exit__(None, None, None)
    f(torch.ones(5))
    second.__exit__(None, None, None)
    assert (one.compiles, other.compiles) == (1, 2)


def test_memory_is_bounded_and_says_so() -> None:
    f = compiled(dynamic=True)
    with anyshape.observe(limit=10) as seen:
        for n in range(2, 60):
            f(torch.ones(n))
        report = seen.report
    assert len(report.calls) + len(report.compilations) <= 10
    assert any("older events were let go" in p for p in report.problems)


@pytest.mark.parametrize(("sample", "low", "high"), [(1.0, 200, 200), (0.1, 150, 250), (0.0, 0, 0)])
def test_a_share_of_the_calls_is_counted(sample: float, low: int, high: int) -> None:
    f = compiled()
    with anyshape.observe(sample=sample) as seen:
        for _ in range(200):
            f(torch.ones(4))
    assert low <= seen.report.call_count <= high


def test_an_exception_in_the_doctor_does_not_reach_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    f = compiled()

    def broken(*args: Any) -> Any:
        raise ZeroDivisionError("in the doctor")

    monkeypatch.setattr(seam.failed_guards, "failed", broken)
    monkeypatch.setattr(seam.described, "sized_inputs", broken)
    with anyshape.observe() as seen:
        assert torch.equal(f(torch.ones(4)), torch.full((4,), 2.0))
        assert torch.equal(f(torch.ones(5)), torch.full((5,), 2.0))
    assert seen.compiles == 2
    assert any("ZeroDivisionError: in the doctor" in p for p in seen.report.problems)


def test_a_sink_that_fails_does_not_reach_the_program() -> None:
    def full(event: Any) -> None:
        raise OSError("no space left on device")

    f = compiled()
    with seam.watching(seam.Observer(full)):
        assert torch.equal(f(torch.ones(4)), torch.full((4,), 2.0))


def test_compilations_of_threads_are_seen() -> None:
    with anyshape.observe() as seen:
        threads = [threading.Thread(target=compiled(), args=(torch.ones(3, n + 2),)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len({c.thread for c in seen.report.compilations}) == 4


def test_programs_of_anyshape_are_seen_with_their_predicates() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] > 6 else x - 1

    g = anyshape.compile(f, backend="eager")
    with anyshape.observe() as seen:
        for n in (4, 8, 1, 0):
            g(torch.ones(n))
    report = seen.report
    assert report.compiles == len(g.programs) == 2
    assert sorted(p.behaviour for p in report.programs) == ["x.shape[0] <= 6", "x.shape[0] > 6"]
    assert not report.findings, str(report)
    assert report.call_count == 4


def test_events_go_through_json_and_back(tmp_path: pathlib.Path) -> None:
    reason = Reason("0/0", "size", "guard", "L['x']", 0, 8, 9, "a.py", 3, "x + 1")
    written = [
        events.Run(command=("script", "a.py")),
        Compilation("0/1", "f", "a.py", 2, 0.5, 0.25, reasons=(reason,), arguments={"x": "Tensor"}),
        Calls("0/1", (("L['x']", (9, 4)),), 3, 1.0),
        events.End("returned", 0, 2.0),
    ]
    writer = event_log.Writer(tmp_path / "events")
    for event in written:
        writer(event)
    writer.close()
    assert event_log.read(tmp_path / "events") == (written, [])
    with (tmp_path / "events").open("ab") as file:
        file.write(b'{"event": "compilation"}\n{"event": "other"}\nhalf a li')
    found, problems = event_log.read(tmp_path / "events")
    assert found == written and len(problems) == 3


def test_a_finding_is_the_size_of_its_values() -> None:
    finding = Finding("D101", "a.py", 1, "", "f", "x", 0, (1, 0), 0.5, 2, "why", Remedy("advice", "do"))
    assert finding.subject == "x.shape[0]" and finding.json()["values"] == [1, 0]


@pytest.mark.slow
def test_observing_costs_little() -> None:
    """A ratio of processor time, of the fastest of several rounds: a machine is seldom alone."""
    f = compiled(dynamic=True)
    x = torch.ones(64, 64)

    def fastest() -> float:
        rounds = []
        for _ in range(15):
            began = time.process_time()
            for _ in range(300):
                f(x)
            rounds.append(time.process_time() - began)
        return min(rounds)

    fastest()
    plain = fastest()
    torch._dynamo.reset()
    with anyshape.observe():
        fastest()
        observed = fastest()
    assert observed / plain < 1.25, f"{observed / plain:.3f}: a graph of one multiplication is the worst case"


def test_the_plugin_reports_and_its_fixture_says_why(pytester: Any) -> None:
    pytester.makepyfile(
        """
        import torch

        def test_it(expect_programs):
            f = torch.compile(lambda x: x * 2, backend="eager")
            with expect_programs(1):
                for n in (8, 9):
                    f(torch.ones(n))

        def test_fine(expect_programs):
            f = torch.compile(lambda x: x * 2, backend="eager", dynamic=True)
            with expect_programs(1) as seen:
                for n in (8, 9):
                    f(torch.ones(n))
            assert not seen.findings
        """
    )
    result = pytester.runpytest_inprocess("-p", "anyshape_pytest", "--anyshape-report", "report.json")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["expected 1 programs, 2 were compiled", "*D102*x.shape?0?*", "*= anyshape =*"])
    assert (pytester.path / "report.json").exists()
