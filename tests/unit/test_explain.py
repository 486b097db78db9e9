"""`anyshape.explain`: the text, the JSON and the HTML, from values made by hand and from a real function."""

from __future__ import annotations

import io
import json
import pathlib
import sys

import pytest
import sympy
import torch

import anyshape
from anyshape import errors
from anyshape.assumptions.wording import relation_text
from anyshape.explain import Explanation, describe, explain
from anyshape.programs import Predicate, Program


def program(*predicates: Predicate, calls: int = 3) -> Program:
    return Program(
        name="forward",
        file="model.py",
        line=10,
        predicates=predicates,
        requirements=("x.shape[1] == w.shape[0]",),
        classes=2,
        variants=(),
        calls=calls,
        capture_seconds=0.25,
        compile_seconds=1.5,
        verify_seconds=0.125,
        graph_breaks=(),
    )


BRANCH = Predicate("x.shape[0] > 8", "user", "model.py", 12)
REPORT = Explanation("forward", (program(BRANCH), program(calls=1)), {"RuntimeError: no": 2, "<b>": 5})

TEXT = """\
forward: 2 programs, 4 calls, 7 run eagerly

1. x.shape[0] > 8
   from:         forward at model.py:10
   predicate:    x.shape[0] > 8    asked by your code at model.py:12
   requires:     x.shape[1] == w.shape[0]
   classes:      2
   calls:        3
   seconds:      capture 0.25, compile 1.50, verify 0.12

2. every size
   from:         forward at model.py:10
   requires:     x.shape[1] == w.shape[0]
   classes:      2
   calls:        1
   seconds:      capture 0.25, compile 1.50, verify 0.12

ran eagerly:
   5 × <b>
   2 × RuntimeError: no"""


def test_text() -> None:
    assert str(REPORT) == TEXT


def test_json_can_be_written() -> None:
    data = json.loads(json.dumps(REPORT.json()))
    assert data["calls"] == 4 and data["seconds"] == 3.75
    assert data["programs"][0]["behavior"] == "x.shape[0] > 8"
    assert data["programs"][0]["predicates"] == [
        {"text": "x.shape[0] > 8", "asked_by": "user", "file": "model.py", "line": 12}
    ]
    assert data["fallbacks"] == {"RuntimeError: no": 2, "<b>": 5}


def test_html_is_escaped() -> None:
    page = REPORT._repr_html_()
    assert "x.shape[0] &gt; 8" in page and "&lt;b&gt;" in page and "<td><b>" not in page


def test_rich_shows_every_fact() -> None:
    rich = pytest.importorskip("rich.console")
    console = rich.Console(width=120, record=True, file=io.StringIO())
    console.print(REPORT)
    shown = console.export_text()
    # Square brackets are rich's markup: sizes must come through all the same.
    assert "x.shape[0] > 8" in shown and "asked by your code at model.py:12" in shown and "RuntimeError: no" in shown


def test_plain_text_without_rich(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    REPORT.print()
    assert capsys.readouterr().out == TEXT + "\n"


def test_describe() -> None:
    assert describe(program(BRANCH)) == (
        "forward (model.py:10): x.shape[0] > 8\n  x.shape[0] > 8    asked by your code at model.py:12"
    )


def test_refuses_what_was_not_compiled() -> None:
    with pytest.raises(errors.NotCompilableError, match="takes a function compiled by anyshape"):
        explain(len)


def test_of_a_real_function() -> None:
    def branch(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 8:
            return x + 1
        return x * 2

    f = anyshape.compile(branch, backend="eager")
    for n in (3, 12, 5, 20):
        f(torch.ones(n))
    report = explain(f)
    assert {p.behavior for p in report.programs} == {"x.shape[0] > 8", "x.shape[0] <= 8"}
    assert report.calls == 4 and not report.fallbacks
    (predicate,) = report.programs[0].predicates
    line = pathlib.Path(__file__).read_text().splitlines()[predicate.line - 1]
    assert predicate.asked_by == "user" and predicate.file == __file__ and "if x.shape[0] > 8" in line


def test_a_maximum_is_left_out_only_beside_a_number() -> None:
    n = sympy.Symbol("n", integer=True)
    assert relation_text(sympy.Eq(sympy.Max(1, n), 3, evaluate=False)) == "n == 3"
    assert relation_text(sympy.Eq(sympy.Max(1, n), 1, evaluate=False)) == "n <= 1"
    other = sympy.Max(0, n - sympy.Min(1, n))
    assert "Max(0, n - 1)" in relation_text(sympy.Eq(sympy.Max(0, n - 1), other, evaluate=False))
