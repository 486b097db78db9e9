"""Programs as people write them, with installed packages: the findings are right, and what is proposed helps."""

from __future__ import annotations

import pathlib

import pytest
from harness import run_here

from anyshape.doctor import trials

FOLDER = pathlib.Path(__file__).parent / "real"
EXPECTED = {  # the arguments that vary, and the lines that may be named
    "generate": ({"ids", "keys", "values"}, "D102"),
    "train": ({"tokens", "mask"}, "D102"),
}


@pytest.mark.parametrize("name", [pytest.param("generate", marks=pytest.mark.slow), "train"])
def test_the_remedies_of_a_real_program(name: str) -> None:
    if name == "generate":
        pytest.importorskip("transformers")
    path = FOLDER / f"{name}.py"
    before = run_here(path)
    assert before.status == 0
    arguments, code = EXPECTED[name]
    found = {s.argument for f in before.report.findings if f.code == code and f.file == str(path) for s in f.about}
    assert found >= arguments, str(before.report)
    report, _ = trials.verify(before, lambda remedies: run_here(path, remedies))
    assert report.trial is not None and report.trial.outputs == "equal", str(report)
    assert report.trial.compiles_after <= 0.2 * report.trial.compiles_before, str(report)
