"""How two runs are compared, and which remedy is kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from anyshape.doctor import launch, trials
from anyshape.doctor.events import Compilation, EagerCalls, Event, Reason, Result, Run
from anyshape.doctor.findings import Remedy
from anyshape.doctor.report import Report, change
from anyshape.doctor.trials import Outcome

ONE = Result(0, "torch.float32[4]", "aa", (4.0, 4.0, 1.0))


def outcome(compiles: int, results: Sequence[Result] = (ONE,), status: int = 0) -> Outcome:
    """A run with so many compilations, each for another size."""
    found: list[Event] = [Run()]
    for i in range(compiles):
        reason = Reason(f"0/{i - 1}", "size", "guard", "L['x']", 0, 7 + i, 8 + i, "m.py", 2)
        found.append(
            Compilation(
                f"0/{i}",
                "f",
                "m.py",
                1,
                float(i),
                0.5,
                reasons=(reason,) if i else (),
                dynamic="dynamic=False",
                module="m",
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
    assert trials.same_outputs(before, after) == says


def test_the_first_remedy_that_cures_is_kept() -> None:
    tried: list[str] = []

    def run(remedies: Sequence[Remedy]) -> Outcome:
        tried.append(remedies[0].kind)
        return outcome(5 if remedies[0].kind == "environment" else 1)

    report, written = trials.verify(outcome(5), run)
    first = report.findings[0]
    assert tried == ["environment", "declared"] and not written
    assert first.remedy.kind == "declared" and first.trial is not None and report.trial == first.trial
    assert "5 programs before, 1 with it" in str(report) and "outputs equal" in str(report)


def test_a_remedy_that_leaves_the_disease_does_not_end_the_search() -> None:
    report, _ = trials.verify(outcome(5), lambda r: outcome(3 if r[0].kind == "environment" else 1))
    first = report.findings[0]
    assert first.remedy.kind == "declared" and [r.kind for r in first.others] == ["environment"]


def test_a_remedy_that_is_slower_is_not_called_proved() -> None:
    def run(remedies: Sequence[Remedy]) -> Outcome:
        after = outcome(1)
        slow = tuple(dataclasses.replace(c, seconds=9.0) for c in after.report.compilations)
        return dataclasses.replace(after, report=dataclasses.replace(after.report, compilations=slow))

    text = str(trials.verify(outcome(5), run)[0])
    assert "tried: " in text and "compiling took longer here" in text and "proved:" not in text


def test_what_is_written_was_run_as_it_is_written() -> None:
    texts: list[str] = []

    def run(remedies: Sequence[Remedy]) -> Outcome:
        texts.extend(r.toml for r in remedies)
        return outcome(1)

    _, written = trials.verify(outcome(5), run, write=True)
    assert written and set(written) <= set(texts)


@pytest.mark.parametrize(
    "after",
    [
        outcome(1, [dataclasses.replace(ONE, text="other")]),
        outcome(1, status=1),
        outcome(5),
        outcome(9),
        dataclasses.replace(outcome(0), report=Report.of([Run(), EagerCalls("", "f", "", 0, 5, 1.0, by="anyshape")])),
    ],
    ids=["another result", "fails", "as many", "more", "all eager"],
)
def test_a_remedy_that_does_harm_is_not_proposed(after: Outcome) -> None:
    report, written = trials.verify(outcome(5), lambda remedies: after, write=True)
    first = report.findings[0]
    assert first.remedy.kind == "advice" and first.trial is None and report.trial is None and not written
    assert "no automatic remedy" in str(report)


def test_a_run_is_not_made_twice() -> None:
    kinds: list[str] = []

    def run(remedies: Sequence[Remedy]) -> Outcome:
        kinds.append(remedies[0].kind)
        return outcome(5)

    before = outcome(5)
    twice = dataclasses.replace(before.report, findings=before.report.findings * 2)
    trials.verify(Outcome(twice, before.results, 0), run)
    assert kinds == ["environment", "declared"]


def test_variables_of_several_remedies_are_joined() -> None:
    remedies = [Remedy("environment", "", settings=(("A", "x"),)), Remedy("environment", "", settings=(("A", "y"),))]
    assert launch.variables(remedies) == {"A": "x,y"}


def test_the_limit_blames_what_made_the_programs_and_counts_what_runs_eagerly() -> None:
    def reasons(i: int) -> tuple[Reason, ...]:
        text = Reason(f"0/{i - 1}", "value", f"L['s'] == {i - 1!r}", "L['s']", None, str(i - 1), str(i), "m.py", 2)
        size = Reason(f"0/{i - 1}", "size", "guard", "L['x']", 0, 7, 8, "m.py", 3)
        return (size, text) if i in (1, 3) else (text,)

    found: list[Event] = [Run()]
    for i in range(4):
        made = "limit" if i == 3 else "compiled"
        found.append(Compilation(f"0/{i}", "f", "m.py", 1, float(i), 0.5, made, reasons=reasons(i) if i else ()))
    found.append(Compilation("1/0", "g", "m.py", 9, 5.0, 0.5, "failed", "RuntimeError: no"))
    found.append(EagerCalls("0/3", "f", "m.py", 1, 7, 4.0))
    report = Report.of(found)
    limit = next(f for f in report.findings if f.code == "D130")
    assert (limit.argument, limit.eager_calls) == ("s", 7) and "the cause is D107" in limit.detail
    assert (report.compiles, report.refused, report.failed, report.eager_calls) == (3, 1, 1, 7)
    for text in ("3 programs", "1 refused at the recompile limit", "1 compilation failed", "7 calls ran eagerly"):
        assert text in report.headline()


def test_a_stride_is_not_called_a_size() -> None:
    stride = Reason("0/0", "stride", "guard", "L['k']", 0, 32, 224, "m.py", 2)
    assert change(stride) == "k.stride(0): 32 -> 224"
    compilation = Compilation("0/1", "f", "m.py", 1, 0.0, 0.5, reasons=(stride,))
    assert Report.of([Run(), compilation]).findings[0].subject == "k.stride(0)"


def test_one_disease_of_several_arguments_is_one_finding() -> None:
    both = tuple(Reason("0/0", "size", "guard", f"L['{n}']", 2, 8, 9, "m.py", 2 + i) for i, n in enumerate("kv"))
    arguments = {"k": "Tensor float32 [1, 2, 8, 4]", "v": "Tensor float32 [1, 2, 8, 4]"}
    made = Compilation("0/1", "f", "m.py", 1, 0.0, 0.5, reasons=both, module="m", arguments=arguments)
    (finding,) = Report.of([Run(), made]).findings
    assert finding.subject == "k.shape[2], v.shape[2]" and finding.seconds == 0.5
    assert finding.remedy.text == "export TORCH_COMPILE_DYNAMIC_SOURCES=\"L['k']:2,L['v']:2\""
    declared = next(r for r in finding.others if r.toml)
    assert 'shapes = { k = "_ _ k_2 _", v = "_ _ v_2 _" }' in declared.toml
