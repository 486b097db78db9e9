"""The parts of the fuzzer: cases, generation, shrinking, repro files, workers that die, corpora."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import anyshape
from anyshape import testing
from anyshape._torch.compile import exact_sizes
from anyshape.fuzz import campaign, command, known, models, opinfos, oracle, repro, rounding, worker
from anyshape.fuzz.case import Call, Case, Input, Step, dumps, loads
from anyshape.fuzz.corpus import Corpus
from anyshape.fuzz.generate import generate
from anyshape.fuzz.operations import FAMILIES, OPERATIONS
from anyshape.fuzz.oracle import COMPILERS, Target, Verdict, function, judge
from anyshape.fuzz.shrink import shrink

SQUEEZE = Case(
    inputs=(Input("x0", ("a", "b"), "float32"), Input("x1", ("b",), "float32")),
    steps=(
        Step("unary", "v0", ("x0",), (("f", "sin"),)),
        Step("squeeze", "v1", ("v0",)),
        Step("unary", "v2", ("x1",), (("f", "cos"),)),
    ),
    results=("v1", "v2"),
    calls=tuple(Call((("a", a), ("b", 3)), ("contiguous", "contiguous")) for a in (4, 1, 7)),
)


def drops_a_dim(case: Case) -> bool:
    """Stands for a compiler that is wrong where a squeeze really squeezes."""
    squeezes = any(s.op == "squeeze" for s in case.steps)
    return squeezes and any(("a", 1) in c.sizes for c in case.calls) and "a" in case.inputs[0].dims


def test_source_is_python_that_runs() -> None:
    assert function(SQUEEZE)(torch.ones(1, 3), torch.zeros(3))[0].shape == (3,)
    assert SQUEEZE.source.splitlines()[1] == "    v0 = x0.sin()"


def test_json_keeps_everything() -> None:
    for case in (SQUEEZE, *generate(3, 0, 20)):
        assert loads(dumps(case)) == case


def test_a_seed_gives_the_same_cases_whatever_is_drawn_besides() -> None:
    assert list(generate(5, 0, 12))[7:12] == list(generate(5, 7, 12))
    assert list(generate(5, 0, 5)) != list(generate(6, 0, 5))


def test_generation_reaches_every_family_and_most_pairs_of_kinds() -> None:
    seen = {s.op for case in generate(1, 0, 200) for s in case.steps}
    assert {OPERATIONS[op].family for op in seen} == set(FAMILIES)
    assert len(seen) > len(OPERATIONS) // 2


def test_most_cases_have_a_result_in_eager() -> None:
    verdicts = [judge(case, Target("eager")) for case in generate(2, 0, 60)]
    assert all(v.kind is None for v in verdicts)
    assert sum(v.raised == 0 for v in verdicts) > 20


def test_shrinking_keeps_what_fails_and_little_else() -> None:
    small = shrink(SQUEEZE, drops_a_dim)
    assert [s.op for s in small.steps] == ["squeeze"]
    assert len(small.calls) == 1 and len(small.inputs) == 1 and small.results == ("v1",)
    assert drops_a_dim(small)


def test_shrinking_stops_when_its_time_is_up() -> None:
    assert shrink(SQUEEZE, drops_a_dim, seconds=0) == SQUEEZE


@pytest.mark.parametrize("compiler", COMPILERS)
def test_every_compiler_is_judged(compiler: str) -> None:
    plain = dataclasses.replace(SQUEEZE, steps=(SQUEEZE.steps[0], SQUEEZE.steps[2]), results=("v0", "v2"))
    verdict = judge(plain, Target(compiler))
    assert verdict.kind is None
    assert verdict.programs == {"anyshape": 1, "stock:dynamic": 2, "stock:unbacked": 1}.get(compiler, 0)


def test_an_unknown_compiler_is_refused_with_a_fix() -> None:
    with pytest.raises(anyshape.Error, match=r"AS007.*'stock:fast'"):
        Target("stock:fast")


def test_variants_are_judged_too(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = dataclasses.replace(SQUEEZE, steps=(SQUEEZE.steps[0], SQUEEZE.steps[2]), results=("v0", "v2"))
    target = Target(backend="inductor", variants=True)
    verdict = judge(plain, target)
    assert (verdict.kind, verdict.programs, verdict.variants) == (None, 1, 3)
    compiled = exact_sizes.Master.compiled
    monkeypatch.setattr(exact_sizes.Master, "compiled", lambda *a: lambda *args: [r + 1 for r in compiled(*a)(*args)])
    assert judge(plain, target).kind == "values"
    monkeypatch.setattr(exact_sizes.Master, "compiled", lambda self, backend, inputs, baked: 1 / 0)
    assert judge(plain, target).kind == "variant"


def test_only_what_has_variants_is_asked_for_them() -> None:
    with pytest.raises(anyshape.Error, match=r"AS007.*has variants"):
        Target(variants=True)


# -- repro files -----------------------------------------------------------------------------------------------

WRONG = """
import anyshape, torch
def wrong(fn, **options):
    return lambda *args: tuple(t + 1 for t in fn(*args))
anyshape.compile = wrong
"""


def run_file(path: pathlib.Path, *, before: str = "") -> subprocess.CompletedProcess[str]:
    text = path.read_text()
    path.write_text(text.replace("import anyshape\n", f"import anyshape\n{before}\n"))
    return subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)


def test_a_repro_file_fails_on_its_own_and_holds_when_mended(tmp_path: pathlib.Path) -> None:
    finding = repro.Finding(SQUEEZE, Verdict("values", "result: values differ"), Target(), 4, 17)
    path = tmp_path / "found.py"
    path.write_text(repro.text(finding))
    held = run_file(path)
    assert held.returncode == 0 and "it holds" in held.stdout, held.stderr
    failed = run_file(path, before=WRONG)
    assert failed.returncode == 1 and "call 0: result 0: values" in failed.stderr
    assert "--seed 4" in path.read_text() and torch.__version__ in path.read_text()
    line = next(row for row in path.read_text().splitlines() if row.startswith('{"backward"'))
    assert loads(line) == SQUEEZE


def test_the_repro_file_of_a_variant_waits_for_it() -> None:
    target = Target(backend="inductor", variants=True)
    text = repro.text(repro.Finding(SQUEEZE, Verdict("values", "result: values differ"), target, 4, 17))
    assert """backend="inductor", shapes={'x0': 'a b', 'x1': 'b'}, specialize=['a >= 0', 'b >= 0'])""" in text
    assert "for number, make in [*enumerate(CALLS)] * 3:\n        compiled.wait()\n" in text
    compile(text, "repro", "exec")


def test_the_repro_file_of_another_device_makes_its_tensors_there() -> None:
    steps = (Step("arange", "v0", ("x0",), (("dim", 0),)), *SQUEEZE.steps)
    case = dataclasses.replace(SQUEEZE, steps=steps)
    target = Target(backend="inductor", device="cuda")
    finding = repro.Finding(case, Verdict("values", "result: values differ"), target, 4, 17)
    text = repro.text(finding)
    assert "v0 = torch.arange(x0.shape[0], device='cuda')" in text and "torch.arange(x0.shape[0])" in case.source
    assert ', device="cuda")' in text and "--device cuda" in text
    compile(text, "repro", "exec")
    assert repro.from_json(finding.json()).target == target


def test_a_finding_survives_json() -> None:
    finding = repro.Finding(SQUEEZE, Verdict("values", "text"), Target("stock:dynamic"), 1, 2, SQUEEZE, "also")
    again = repro.from_json(json.loads(json.dumps(finding.json())))
    assert again == dataclasses.replace(finding, verdict=Verdict("values", "text"))


# -- campaigns -------------------------------------------------------------------------------------------------


def settings(**changes: Any) -> campaign.Settings:
    plain = campaign.Settings(programs=4, seed=3, target=Target("eager"), timeout=60, shrink_seconds=5)
    return dataclasses.replace(plain, **changes)


def test_a_campaign_is_kept_and_goes_on_where_it_stopped(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    first = campaign.run(settings(), Corpus(str(tmp_path)))
    assert first.programs == 4 and first.kinds == {"equal": 4} and first.ops
    monkeypatch.setattr(campaign, "_run_chunk", lambda *args: pytest.fail("it was run again"))
    again = campaign.run(settings(), Corpus(str(tmp_path)))
    assert again.json() == first.json()


def test_shards_are_the_whole_and_nothing_twice() -> None:
    programs = 3 * campaign.CHUNK + 20
    whole = settings(programs=programs).chunks()
    parts = [settings(programs=programs, shard=(i, 3)).chunks() for i in range(3)]
    assert sorted(chunk for part in parts for chunk in part) == whole and whole[-1] == (programs - 20, programs)


def test_the_shard_is_torchruns_where_none_is_given(monkeypatch: Any) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "5")
    assert campaign.parse_shard(None) == (2, 5)
    assert campaign.parse_shard("1/4") == (1, 4)
    with pytest.raises(anyshape.Error, match="AS007"):
        campaign.parse_shard("4/4")


def test_a_worker_that_dies_of_a_case_after_its_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where a kernel fails after it was called."""
    said = [{"event": "case", "number": 0, "case": dumps(SQUEEZE)}]
    said.append({"event": "verdict", **dataclasses.asdict(Verdict())})
    died = {"event": "died", "how": "crash", "text": "status 1"}
    monkeypatch.setattr(campaign, "_events", lambda settings, given: iter([*said, died] if "seed" in given else []))
    result = campaign._run_chunk(settings(programs=1, target=Target()), 0, 1, Corpus(None))
    assert [f["kind"] for f in result["findings"]] == ["crash"] and result["programs"] == 1


@pytest.mark.parametrize(
    ("does", "how"),
    [("os.abort()", "crash"), ("time.sleep(60)", "hang"), ("raise MemoryError('none left')", "memory")],
)
def test_a_worker_that_dies_is_a_finding_and_the_campaign_goes_on(does: str, how: str, tmp_path: pathlib.Path) -> None:
    # A stand-in for the worker: it runs three cases, and dies of the second.
    (tmp_path / "dying.py").write_text(f"""
import json, os, sys, time
given = json.loads(sys.argv[1])
case = {dumps(SQUEEZE)!r}
say = lambda **event: print(json.dumps(event), flush=True)
if "case" in given:
    if given["target"]["compiler"] != "eager":
        {does}
    sys.exit()
for number in range(given["start"], given["stop"]):
    say(event="case", number=number, case=case)
    if number == 1:
        {does}
    eagerly = ["busy"] * number
    say(event="verdict", number=number, kind=None, text="", raised=0, fallbacks=0, programs=1, variants=0, eagerly=eagerly)
say(event="done")
""")
    popen = subprocess.Popen
    stand_in = lambda command, **rest: popen([sys.executable, str(tmp_path / "dying.py"), command[-1]], **rest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(campaign.subprocess, "Popen", stand_in)
        patched = settings(programs=3, target=Target(), timeout=2.0, shrink_seconds=0.1)
        totals = campaign.run(patched, Corpus(str(tmp_path / "corpus")))
    assert totals.programs == 3
    assert totals.kinds == {"equal": 2, how: 1}
    assert totals.eagerly == {"busy": 2} and totals.first == {"busy": 2}
    assert [f["kind"] for f in totals.findings] == [how]
    assert pathlib.Path(totals.findings[0]["file"]).exists()


@pytest.mark.parametrize("dying", [(0,), (1, 2)])
def test_a_worker_that_dies_of_drawing_a_case_is_eagers(
    dying: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step is tried eagerly before a program has it, and some of torch's own kernels end the process."""
    died = {"event": "died", "how": "crash", "text": "status -8"}

    def events(_: Any, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if "draw" in given:
            yield from [died] if given["draw"] in dying else []
            return
        for number in range(given["start"], given["stop"]):
            yield {"event": "drawing", "number": number}
            if number in dying:
                yield died
                return
            yield {"event": "case", "number": number, "case": dumps(SQUEEZE)}
            yield {"event": "verdict", **dataclasses.asdict(Verdict())}
        yield {"event": "done"}

    monkeypatch.setattr(campaign, "_events", events)
    result = campaign._run_chunk(settings(programs=4, target=Target()), 0, 4, Corpus(None))
    assert not result["findings"]
    assert result["kinds"] == {"equal": 4 - len(dying), "eager dies": len(dying)}


def test_known_faults_of_torch_are_counted_by_name() -> None:
    normed = (Step("batch_norm", f"v{i}", ("x0",), ()) for i in range(2))
    twice = Case(
        inputs=(Input("x0", ("a", "b"), "float32", grad=True),),
        steps=tuple(normed),
        results=("v0", "v1"),
        calls=(Call((("a", 2), ("b", 3)), ("contiguous",)),),
    )
    static = worker.static_difference(twice, Target())
    assert static is not None and "share memory" in static
    assert known.name(twice, static) == "equal-results"
    assert known.name(twice, "values differ") is None
    assert known.name(twice, None) is None


def test_a_write_over_one_of_several_parts_is_torchs_own() -> None:
    parts = Step("split", "v0", ("x0",), (("k", 1), ("dim", 1)))
    for operands, name in ((("x0", "v0_0"), "overlapping-operands"), (("x1", "v0_0"), None)):
        case = Case(
            inputs=(Input("x0", ("a", "b"), "float32"), Input("x1", ("a", "b"), "float32")),
            steps=(parts, Step("add_", "v1", operands)),
            results=("v1",),
            calls=(Call((("a", 2), ("b", 2)), ("contiguous", "contiguous")),),
        )
        assert known.name(case, "values differ") == name


def test_what_is_arbitrary_in_eager_is_torchs_own() -> None:
    median = Case(
        inputs=(Input("x0", ("a",), "float32"),),
        steps=(Step("max_dim", "v0", ("x0",), (("f", "median"), ("dim", 0), ("keep", False))),),
        results=("v0_1",),
        calls=(Call((("a", 3),), ("expanded",)),),
    )
    assert known.name(median, None) == known.name(median, "values") == "medians-of-expanded"
    dense = dataclasses.replace(median, calls=(Call((("a", 3),), ("contiguous",)),))
    assert known.name(dense, None) is known.name(dense, "values") is None


def test_an_error_of_what_nobody_reads_is_torchs_own() -> None:
    fill = Step("index_fill", "v0", ("x0",), (("dim", -1),))
    unread = Case(
        inputs=(Input("x0", ("a",), "float32"),),
        steps=(fill, Step("full", "v1", ("v0",), (("dim", 0),))),
        results=("v1",),
        calls=(Call((("a", 0),), ("contiguous",)),),
    )
    assert known.name(unread, worker.static_difference(unread, Target())) == "unread-errors"
    assert known.name(dataclasses.replace(unread, results=("v0", "v1")), "eager raised") is None


def test_an_operand_that_is_written_over_is_torchs_own() -> None:
    over = Case(
        inputs=(Input("x0", ("a", "a"), "float32"),),
        steps=(Step("transpose", "v0", ("x0",), (("dim", 0), ("e", 1))), Step("add_", "v1", ("x0", "v0"))),
        results=("v1",),
        calls=(Call((("a", 3),), ("contiguous",)),),
    )
    assert known.name(over, "eager raised") == "overlapping-operands"
    apart = dataclasses.replace(over, inputs=(*over.inputs, Input("x1", ("a", "a"), "float32")))
    apart = dataclasses.replace(apart, steps=(Step("add_", "v1", ("x0", "x1")),))
    assert known.name(apart, "eager raised") is None


def test_views_that_keep_other_strides_are_other_behaviours() -> None:
    """Of what has gaps: the same sizes in another order are a view where they are equal, and where two make the third."""
    turned = Case(
        inputs=(Input("x0", ("a", "a", "b"), "float32"),),
        steps=(Step("shape_tuple", "v0", ("x0",)),),
        results=("v0",),
        calls=tuple(Call((("a", a), ("b", b)), ("sliced",)) for a, b in ((16, 16), (2, 4), (3, 3), (4, 16))),
    )
    verdict = judge(turned, Target())
    assert verdict.kind is None
    assert verdict.programs == verdict.behaviours == 2


def test_a_known_fault_says_what_it_is() -> None:
    mixed = Case(
        inputs=(Input("x0", ("a",), "float32"), Input("x1", ("a", "a"), "int64")),
        steps=(Step("try_mm", "v0", ("x1", "x0")),),
        results=("v0",),
        calls=(Call((("a", 2),), ("contiguous",) * 2),),
    )
    static = worker.static_difference(mixed, Target())
    assert static is not None and known.name(mixed, static) == "mixed-products"
    assert known.name(mixed, "values: not close") is None


# -- other modes -----------------------------------------------------------------------------------------------


def test_opinfo_mode(tmp_path: pathlib.Path, capsys: Any) -> None:
    file = tmp_path / "rows.json"
    assert command.opinfo(Target(), only="squeeze,bmm", shard=(0, 1), json_file=str(file)) == 0
    rows = json.loads(file.read_text())["rows"]
    assert {r["op"] for r in rows} == {"squeeze", "bmm"} and any(r["out"] for r in rows)
    assert "2 operators" in capsys.readouterr().out
    with pytest.raises(anyshape.Error, match="no operator 'no_such'"):
        opinfos.names("no_such", (0, 1))


def factory() -> Any:
    return lambda x: x.squeeze(0) + 1, lambda batch, seq: (torch.ones(batch, seq),), {"batch": (0, 1, 3)}


def test_model_mode(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "model.json"
    address = f"{__name__}:factory"
    assert command.model(address, Target(), calls=8, seed=0, json_file=str(file)) == 0
    assert json.loads(file.read_text())["calls"] == 8
    with pytest.raises(anyshape.Error, match="no factory at 'nowhere:factory'"):
        models.load("nowhere:factory")


def test_model_mode_names_the_smallest_failing_call(monkeypatch: Any) -> None:
    monkeypatch.setattr(models.compiler, "compile", lambda fn, **options: lambda x: fn(x) + (x.shape[0] == 1))
    report = models.fuzz(f"{__name__}:factory", Target(), calls=12, seed=0)
    assert report.smallest is not None and report.smallest.sizes[0] == 1
    assert "the smallest: batch=1" in report.text()


# -- rounding --------------------------------------------------------------------------------------------------


def test_what_is_as_near_to_the_exact_result_is_rounded_otherwise() -> None:
    outcome = lambda *values: testing.Outcome(torch.tensor(values), None, ())
    exact = testing.Outcome(torch.tensor([1.0, 2.0], dtype=torch.float64), None, ())
    eager = outcome(1.0, 2.0001)
    assert rounding.are_as_near(eager, outcome(1.0001, 2.0), exact)
    assert not rounding.are_as_near(eager, outcome(1.01, 2.0), exact)
    assert not rounding.are_as_near(eager, outcome(float("nan"), 2.0), exact)
    assert not rounding.are_as_near(eager, outcome(1.0), exact)
    assert not rounding.are_as_near(outcome(1, 2), outcome(1, 3), outcome(1, 2))


def test_a_wrong_value_is_no_rounding(monkeypatch: Any) -> None:
    """Nor is one in a case that has all digits already."""
    wrong = lambda fn, *_: lambda *args: tuple(t + 1 for t in fn(*args))
    monkeypatch.setattr(oracle, "compiled", wrong)
    assert judge(SQUEEZE, Target()).kind == "values"
    wide = rounding.widened(SQUEEZE)
    assert wide is not None and rounding.widened(wide) is None and judge(wide, Target()).kind == "values"


def test_a_machine_that_is_too_small_is_no_finding(monkeypatch: Any) -> None:
    def full(*args: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 17179869184 bytes.")

    monkeypatch.setattr(oracle, "compiled", lambda fn, *_: full)
    verdict = judge(SQUEEZE, Target())
    assert (verdict.kind, verdict.text) == (None, "no memory")
