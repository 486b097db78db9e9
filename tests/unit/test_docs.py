"""The code in the README, the tour and the how-to of export runs, and what it says in a comment beside an expression is so."""

from __future__ import annotations

import ast
import functools
import pathlib
import re
from typing import Any

import pytest
import torch

import anyshape
from anyshape import compiler

ROOT = pathlib.Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SAYS = re.compile(r"^(?P<expression>[^#=\n]+\S)\s{2,}# (?P<value>\[.*\]|\d+)(:.*)?$", re.MULTILINE)


def blocks(page: str) -> list[str]:
    return BLOCK.findall((ROOT / page).read_text())


def with_backend(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    """The default backend needs a C++ compiler and minutes; what the pages say does not depend on it."""
    quick = functools.partial(compiler.compile, backend=backend)
    monkeypatch.setattr(anyshape, "compile", quick)
    monkeypatch.setattr(compiler, "compile", quick)


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial/tour.md", "docs/howto/export.md"])
def test_code_runs_and_does_what_it_says(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_backend(monkeypatch, "eager")
    scope: dict[str, Any] = {
        "torch": torch,
        "fn": torch.relu,
        "f": anyshape.compile(torch.tanh),
    }
    said = 0
    for block in blocks(page):
        # A file of its own, so that torch finds the source of what is defined in it.
        exec(compile(block, f"<{page}>", "exec"), scope)
        for match in SAYS.finditer(block):
            assert eval(match["expression"], scope) == ast.literal_eval(match["value"]), match[0]
            said += 1
    assert said or page == "README.md"


def test_readme_example_has_the_programs_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with_backend(monkeypatch, "eager")
    scope: dict[str, Any] = {}
    exec(compile(blocks("README.md")[0], "<README.md>", "exec"), scope)
    assert sorted(p.behavior for p in scope["head"].programs) == ["x.shape[0] <= 8", "x.shape[0] > 8"]


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    pages = [p.relative_to(ROOT / "docs").as_posix() for p in (ROOT / "docs").rglob("*.md")]
    assert pages and [p for p in pages if p not in navigation] == []
