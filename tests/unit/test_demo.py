"""The demonstration: its cases are what they say, it is right, and it says so when something is not."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from typing import Any

import pytest
import torch

from anyshape import compiler, demo
from anyshape._torch.comparison import stock

SMALL = [case for case in demo.CASES if case.name != "transformer block"]


def by_way(rows: list[demo.Row], case: str) -> dict[str, demo.Row]:
    return {row.way: row for row in rows if row.case == case}


def test_cases_include_zero_and_one() -> None:
    for case in demo.CASES:
        first = {size[0] for size in case.sizes}
        assert {0, 1} <= first, case.name
        assert len(case.inputs(*case.sizes[0])) == len(case.free)


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_as_many_programs_as_behaviours(case: demo.Case) -> None:
    row = demo.run_case(case, demo.OURS, backend="aot_eager")
    assert row.wrong == () and row.programs == case.behaviours and row.continuations == 0


def test_stock_is_counted() -> None:
    case = next(c for c in SMALL if c.name == "squeeze")
    with stock.measuring():
        auto = demo.run_case(case, "stock auto", backend="aot_eager")
        dynamic = demo.run_case(case, "stock dynamic=True", backend="aot_eager")
    assert auto.equal and dynamic.equal and auto.programs > dynamic.programs > case.behaviours


def test_the_table_shows_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    case = SMALL[0]
    right = demo.Row(case.name, demo.OURS, 1, 0, 0.5, 7, ())
    wrong = dataclasses.replace(right, way="stock auto", wrong=("(1,): shape (1,), in eager (2,)",))
    demo.show([wrong, right], [case])
    shown = capsys.readouterr().out
    assert "no (1 of 7)" in shown and "yes" in shown
    assert f"{case.name}, stock auto: at (1,): shape (1,), in eager (2,)" in shown


def test_plain_text_without_rich(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in [m for m in sys.modules if m.split(".")[0] == "rich"] + ["rich", "rich.console", "rich.progress"]:
        monkeypatch.setitem(sys.modules, name, None)
    case = next(c for c in SMALL if c.name == "topk(x, k)")
    demo.run(backend="eager", cases=[case], ways=[demo.OURS])
    shown = capsys.readouterr().out
    assert re.search(r"\.\.\. +\d+ s  topk\(x, k\): anyshape", shown)
    assert "yes\n\nanyshape compiled 1 programs in" in shown


def test_it_ends_in_one_sentence_with_the_totals() -> None:
    ours = [demo.Row("a", demo.OURS, 1, 0, 2.0, 7, ()), demo.Row("b", demo.OURS, 2, 0, 3.0, 6, ())]
    stock_rows = [
        demo.Row("a", "stock auto", 9, 0, 11.0, 7, ()),
        demo.Row("b", "stock auto", 4, 0, 3.0, 6, ("(0,): no",)),
    ]
    assert demo.summary([*stock_rows, *ours]) == (
        "anyshape compiled 3 programs in 5 s and all 13 results equal eager's; "
        "stock auto compiled 13 programs in 14 s and 1 of 13 results differ from eager's."
    )


def test_without_a_compiler_the_backend_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    backend, note = demo.usable_backend("inductor")
    assert backend == "aot_eager" and note is not None and "no C++ compiler" in note
    assert demo.usable_backend("eager") == ("eager", None)


# -- the command line ------------------------------------------------------------------------------------------


def run_cli(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    from anyshape import cli

    monkeypatch.setattr(sys, "argv", ["anyshape", *arguments])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return int(stopped.value.code or 0)


def test_exit_status(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    case = next(c for c in SMALL if c.name == "topk(x, k)")
    monkeypatch.setattr(demo, "run", lambda backend: [demo.run_case(case, demo.OURS, backend=backend)])
    assert run_cli(monkeypatch, "demo", "--backend", "eager") == 0

    class Wrong:
        programs = ()

        def __call__(self, *args: Any) -> Any:
            return torch.zeros(3)

    monkeypatch.setattr(compiler, "compile", lambda fn, **options: Wrong())
    assert run_cli(monkeypatch, "demo", "--backend", "eager") == 1


def test_module_and_help() -> None:
    done = subprocess.run([sys.executable, "-m", "anyshape", "--help"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "demo" in done.stdout
