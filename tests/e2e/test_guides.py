"""The guides run as they are written, and what one says in a comment beside an expression is so."""

from __future__ import annotations

import ast
import pathlib
import re
from typing import Any

import pytest

import anyshape
from anyshape import compiler

GUIDES = pathlib.Path(__file__).parents[2] / "docs" / "howto"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SAYS = re.compile(r"^(?P<expression>[^#=\n]+\S)\s{2,}# (?P<value>\d+)$", re.MULTILINE)


@pytest.mark.parametrize(
    "guide",
    [
        "train-with-partial-batches",
        "serve",
        "mixture-of-experts",
        "move-from-marks",
        pytest.param("hugging-face", marks=pytest.mark.slow),
    ],
)
def test_runs(guide: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if guide == "hugging-face":
        pytest.importorskip("transformers")

    def quick(fn: Any, **options: Any) -> Any:
        """The default backend needs a C++ compiler and minutes; little of what the guides say depends on it."""
        return compiler.compile(fn, **options if options.get("background") else {**options, "backend": "aot_eager"})

    monkeypatch.setattr(anyshape, "compile", quick)
    scope: dict[str, Any] = {"__name__": "guide"}
    said = 0
    for block in BLOCK.findall((GUIDES / f"{guide}.md").read_text()):
        exec(compile(block, f"<{guide}>", "exec"), scope)
        for match in SAYS.finditer(block):
            assert eval(match["expression"], scope) == ast.literal_eval(match["value"]), match[0]
            said += 1
    assert said
