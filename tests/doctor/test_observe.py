"""`anyshape.observe()`: the same from inside a program, bounded, and with nothing left behind."""

from __future__ import annotations

import linecache
import pathlib
import runpy
import threading
import time
from typing import Any

import pytest
import torch
import torch.utils.flop_counter
from torch.utils._traceback import shorten_filename

import anyshape
from anyshape._torch.observe import compilation_hooks as seam
from anyshape._torch.observe import failed_guards
from anyshape.doctor import causes, event_log, events
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
    before = [getattr(*place.found) for place in seam.hooked() if place.is_there]
    with anyshape.observe(), anyshape.observe():
        assert [getattr(*place.found) for place in seam.hooked() if place.is_there] != before
    assert [getattr(*place.found) for place in seam.hooked() if place.is_there] == before


def test_observers_that_overlap_see_the_same() -> None:
    f = compiled()
    first, second = anyshape.observe(), anyshape.observe()
    one, other = first.__enter__(), second.__enter__()
    f(torch.ones(4))
    first.__exit__(None, None, None)
    f(torch.ones(5))
    second.__exit__(None, None, None)
    assert (one.compiles, other.compiles) == (1, 2)


def test_what_two_observers_see_is_counted_once() -> None:
    f = anyshape.compile(lambda x: x + 1, backend="eager")
    with anyshape.observe() as outer:
        with anyshape.observe() as inner, anyshape.testing.expect_programs(1):
            f(torch.ones(4))
        assert (outer.compiles, inner.compiles) == (1, 1)
    assert len(outer.report.programs) == 1 and outer.report.call_count == 1


@pytest.mark.parametrize("fullgraph", [False, True])
def test_calls_after_the_limit_are_counted(fullgraph: bool) -> None:
    f = compiled(dynamic=False, fullgraph=fullgraph)
    with torch._dynamo.config.patch(recompile_limit=3), anyshape.observe() as seen:
        for n in (2, 3, 4, 5, 6, 4, 7, 2):
            try:
                f(torch.ones(n))
            except Exception:
                assert fullgraph
    report = seen.report
    assert (report.compiles, report.call_count) == (3, 5)
    if not fullgraph:
        assert (report.refused, report.eager_calls) == (1, 3)
        assert next(x for x in report.findings if x.code == "D130").eager_calls == 3
    else:
        assert report.eager_calls == 0, "those calls raised"


def test_calls_that_anyshape_runs_eagerly_are_counted() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] > 6 else x - 1

    g = anyshape.compile(f, backend="eager", on_new_behavior="eager")
    with anyshape.warm_up(g):
        g(torch.ones(8))
    with anyshape.observe() as seen:
        for n in (3, 4, 9):
            g(torch.ones(n))
    assert seen.report.eager_calls == sum(g.fallbacks.values()) == 2
    assert "2 calls ran eagerly" in seen.report.headline()


def test_graphs_and_code_are_kept_where_they_are_asked_for() -> None:
    for asked in (False, True):
        torch._dynamo.reset()
        with anyshape.observe(code=asked) as seen:
            compiled()(torch.ones(4))
        assert [c.kind for c in seen.report.code] == (["graph"] if asked else [])
    assert "def forward" in seen.report.code[0].text and seen.report.code[0].id == seen.report.compilations[0].id


def test_lines_of_the_doctor_are_not_in_the_messages_of_torch() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        kept = x[x > 0]
        return x if kept.shape[0] == 0 else kept

    g = torch.compile(f, backend="eager", fullgraph=True)
    with anyshape.observe() as seen, pytest.raises(Exception, match="data-dependent") as raised:
        g(torch.ones(3))
    assert "anyshape" not in str(raised.value)
    (finding,) = seen.report.findings
    assert finding.code == "D120" and finding.source_line.endswith("else kept")


@pytest.mark.parametrize("same_first", [False, True])
def test_two_arguments_that_are_one_tensor(same_first: bool) -> None:
    def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a * 2 + b

    g = torch.compile(f, backend="eager")
    one, other = torch.ones(4), torch.ones(4)
    pairs = [(one, one), (one, other)]
    with anyshape.observe() as seen:
        for pair in pairs if same_first else pairs[::-1]:
            g(*pair)
    (finding,) = seen.report.findings
    assert (finding.code, finding.subject) == ("D115", "a, b")
    assert "is one now" not in finding.detail and ("are two now" in finding.detail) == same_first


def test_what_follows_a_graph_break_is_told_in_the_words_of_the_user() -> None:
    def rows(x: torch.Tensor) -> torch.Tensor:
        kept = torch.nonzero(x > 2).squeeze(-1)
        return x[kept] * 2

    g = torch.compile(rows, backend="eager")
    with anyshape.observe() as seen:
        for n in (4, 6, 9):
            g(torch.arange(float(n)))
    assert "___stack" not in str(seen) and "torch_dynamo_resume" not in str(seen)
    assert not any("___stack" in r.text for f in seen.findings for r in (f.remedy, *f.others))
    (of_x,) = [f for f in seen.findings if f.subject == "x.shape[0]"]
    assert of_x.compiles == 2, "the function and what follows its graph break: one size, one finding"
    assert "<value before the graph break>.shape[0]" in [f.subject for f in seen.findings]


def test_an_offset_that_is_read_before_a_graph_break() -> None:
    def part(v: torch.Tensor) -> torch.Tensor:
        return v * 2 + v.storage_offset()

    g = torch.compile(part, backend="eager")
    memory = torch.arange(32.0)
    with anyshape.observe() as seen:
        for i in range(0, 32, 8):
            g(memory[i : i + 8])
    (finding,) = [f for f in seen.findings if f.code == "D116"]
    assert finding.subject == "v" and "register_buffer" not in str(seen)


def test_a_dict_with_other_keys() -> None:
    def f(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return sum(v.sum() for v in batch.values()) + torch.zeros(1)

    g = torch.compile(f, backend="eager")
    with anyshape.observe() as seen:
        for key in ("mask", "labels"):
            g({"ids": torch.ones(4), key: torch.ones(4)})
    (finding,) = seen.findings
    assert (finding.code, finding.subject, finding.values) == ("D114", "batch", ("mask", "labels"))
    assert finding.detail == "other keys: 'mask' before, 'labels' now"


def test_a_branch_that_is_not_known_is_told_as_python_writes_it() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        kept = x[x > 0]
        return x if kept.shape[0] == 0 else kept

    with anyshape.observe() as seen, pytest.raises(Exception, match="data-dependent"):
        torch.compile(f, backend="eager", fullgraph=True)(torch.ones(3))
    (finding,) = seen.findings
    assert finding.detail == "not known: u0 == 0 (u0 is computed when the program runs)"
    assert "torch.cond" in finding.others[-1].text


def test_an_assignment_to_out_is_no_out_argument() -> None:
    def f(x: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
        out = x * 2
        return out + buffer.sum()

    with anyshape.observe() as seen:
        g = torch.compile(f, backend="eager")
        for n in (4, 6):
            g(torch.ones(n), torch.ones(3))
    assert [f.code for f in seen.findings] == ["D102"]


@pytest.mark.parametrize(
    ("line", "is_argument"),
    [
        ("torch.mm(a, b, out=c)", True),
        ("torch.topk(x, 3, out = (v, i))", True),
        ("out=c,", True),
        ("out = x * 2", False),
        ("if out == 3:", False),
        ("f(layout=x)", False),
    ],
)
def test_what_is_an_out_argument(line: str, is_argument: bool) -> None:
    assert bool(causes._OUT.search(line)) == is_argument


def test_another_object_of_one_type_is_told_as_such() -> None:
    def apply(x: torch.Tensor, fn: Any) -> torch.Tensor:
        return fn(x) + 1

    g = torch.compile(apply, backend="eager")
    with anyshape.observe() as seen:
        for fn in (torch.relu, torch.sigmoid):
            g(torch.ones(4), fn)
    (finding,) = seen.findings
    assert (finding.code, finding.subject) == ("D107", "fn")
    assert finding.detail in (  # torch 2.11 does not say of which type the object was
        "another object than before; both are of type builtin_function_or_method",
        "another object than before, of type builtin_function_or_method now",
    )


def test_a_dtype_that_is_passed_in_is_told_by_its_name() -> None:
    def cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return x.to(dtype).sum()

    g = torch.compile(cast, backend="eager")
    with anyshape.observe() as seen:
        for dtype in (torch.float32, torch.float64):
            g(torch.ones(4), dtype)
    (finding,) = seen.findings
    assert finding.values == ("torch.float32", "torch.float64")
    assert finding.detail == "torch.float32 before, torch.float64 now"


def test_an_attribute_of_an_argument_is_not_told_to_become_a_buffer() -> None:
    class Batch:
        def __init__(self, scale: float) -> None:
            self.scale = scale

    g = torch.compile(lambda x, batch: x * batch.scale, backend="eager")
    with anyshape.observe() as seen:
        for scale in (1.0, 2.0):
            g(torch.ones(4), Batch(scale))
    (finding,) = seen.findings
    assert (finding.code, finding.subject) == ("D110", "batch.scale")
    assert "register_buffer" not in str(seen)


def test_the_line_is_shown_where_a_guard_has_none(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "same.py"
    script.write_text("""
import torch

@torch.compile(backend="eager")
def mix(a, b):
    return a + 2 * b

x, y = torch.ones(4), torch.zeros(4)
mix(x, y)
mix(x, x)
""")
    with anyshape.observe() as seen:
        runpy.run_path(str(script))
    assert '@torch.compile(backend="eager")' in str(seen) and "(the call at same.py:10)" in str(seen)


def test_a_file_is_not_taken_for_another_that_ends_alike(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "counter.py"
    script.write_text("")
    linecache.getlines(torch.utils.flop_counter.__file__)
    linecache.cache[str(script)] = (0, None, ["\n"], str(script))
    try:
        for file in (str(script), torch.utils.flop_counter.__file__):
            assert failed_guards.resolve(shorten_filename(file)) == file
        assert failed_guards.resolve("counter.py") == "counter.py", "what is not known is left as it is"
    finally:
        del linecache.cache[str(script)]


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
    monkeypatch.setattr(seam.descriptions, "sized_inputs", broken)
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


def test_the_plugin_refuses_a_file_before_the_tests_are_run(pytester: Any) -> None:
    pytester.makepyfile("def test_it():\n    open('ran', 'w')")
    result = pytester.runpytest_inprocess("-p", "anyshape_pytest", "--anyshape-report", "nowhere/report.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR and not (pytester.path / "ran").exists()
    result.stderr.fnmatch_lines(["*AS061: the file cannot be written*"])
