"""`make conformance` on a small checkout: crashes, resuming, the reviewed list, and the table."""

from __future__ import annotations

import json
import pathlib
import textwrap
from typing import Any

import pytest

from benchmarks.conformance import report, reviewed
from benchmarks.conformance.__main__ import main
from benchmarks.conformance.run import Run, sample

# What runs with anyshape can be told by the callable that comes back.
PRETEND = """
    import os
    import torch

    def compiled():
        return torch.compile(lambda x: x + 1, backend="eager", dynamic=True)

    def test_values():
        assert compiled()(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]

    def test_stocks_own_words():
        assert "anyshape" not in type(compiled()).__module__

    def test_wrong():
        assert not hasattr(compiled(), "programs"), "made by anyshape"

    def test_crash():
        if hasattr(compiled(), "programs"):
            os._exit(7)

    def test_stock_fails_too():
        assert compiled() is None

    def test_the_function_is_compiled_once_more_inside():
        torch._dynamo.optimize("eager", nopython=True)(lambda x: x)(torch.ones(2))
"""
FILE = "dynamo/test_pretend.py"


@pytest.fixture
def checkout(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "pytorch" / "test" / FILE
    path.parent.mkdir(parents=True)
    path.write_text(textwrap.dedent(PRETEND))
    list_ = (
        f'[[reviewed]]\nreason = "says who made it"\ntests = ["{FILE}::test_stocks_own_words", "{FILE}::test_values"]\n'
    )
    (tmp_path / "reviewed.toml").write_text(list_)
    return tmp_path


def conformance(checkout: pathlib.Path, *more: str) -> int:
    where = [str(checkout / "pytorch"), "--results", str(checkout / "results")]
    return main([*where, "--reviewed", str(checkout / "reviewed.toml"), "--only", FILE, *more])


def test_a_small_checkout(checkout: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    page = checkout / "table.md"
    assert conformance(checkout, "--markdown", str(page)) == 1
    out = capfd.readouterr().out
    assert f"failed: {FILE}::test_wrong\n    AssertionError: made by anyshape" in out
    assert f"crashed: {FILE}::test_crash" in out and f"on the list, and passes: {FILE}::test_values" in out
    cells = page.read_text().splitlines()[2].split(" | ")
    assert cells[:7] == [f"| {FILE}", "5", "2", "1", "2", "1", "0"]
    assert conformance(checkout, "--report") == conformance(checkout) == 1
    assert capfd.readouterr().err == ""  # nothing was run again


def test_what_is_forgotten_is_run_again(tmp_path: pathlib.Path) -> None:
    run = Run(tmp_path, tmp_path / "results", timeout=1, at_once=1)
    lines = [{"kind": kind, "id": f"a.py::{name}"} for name in "xyz" for kind in ("start", "end")]
    path = run.results / "a.stock.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run.forget("a.py", "stock", ["a.py::y"])
    assert list(run.of("a.py", "stock")) == ["a.py::x", "a.py::z"]


def test_what_is_no_checkout_is_said(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path)])
    assert "PYTORCH is a checkout of PyTorch at v" in capsys.readouterr().err


def result(outcome: str, text: str = "") -> dict[str, Any]:
    return {"outcome": outcome, "text": text, "seconds": 1.0, "fallbacks": {}}


def test_the_list_excuses_no_crash_and_no_hang() -> None:
    stock = {name: result("passed") for name in "abcd"}
    ours = {
        "a": result("failed"), "b": result("crashed"), "c": result("hung"), "d": result("failed", "E   Failed: Timeout (>9s)"),
    }  # fmt: skip
    row = report.Row("f", stock, ours, dict.fromkeys("abcd", "says so"))
    assert (row.listed(), row.failed(), row.crashed(), row.hung()) == (["a"], ["b", "c", "d"], ["b"], ["c", "d"])
    assert report.share([row]) == 0.25


def test_a_sample_is_the_same_each_time_and_in_order() -> None:
    ids = [f"t{i}" for i in range(50)]
    chosen = sample(ids, 7, 3)
    assert chosen == sample(ids, 7, 3) == sorted(chosen, key=ids.index) and len(chosen) == 7
    assert sample(ids, None, 3) == sample(ids, 99, 3) == ids


def test_each_test_of_the_reviewed_list_has_one_reason() -> None:
    for test, reason in reviewed.load().items():
        assert "::" in test and len(reason) > 20, test


def test_a_list_without_reasons_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "reviewed.toml"
    path.write_text('[[reviewed]]\nreason = " "\ntests = ["a::b"]\n')
    with pytest.raises(ValueError, match="without a reason"):
        reviewed.load(path)
    path.write_text('[[reviewed]]\nreason = "it counts graphs"\ntests = ["a::b", "a::b"]\n')
    with pytest.raises(ValueError, match="listed twice"):
        reviewed.load(path)
