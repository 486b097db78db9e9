"""The pages are in the navigation, and the README's example has the programs it names."""

from __future__ import annotations

import functools
import pathlib
import re
from typing import Any

import pytest

import anyshape
from anyshape import compiler

ROOT = pathlib.Path(__file__).parents[2]


def test_readme_example_has_the_programs_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anyshape, "compile", functools.partial(compiler.compile, backend="eager"))
    block = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert block is not None
    scope: dict[str, Any] = {}
    exec(compile(block[1], "<README.md>", "exec"), scope)
    assert sorted(p.behavior for p in scope["head"].programs) == ["x.shape[0] <= 8", "x.shape[0] > 8"]


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    pages = [p.relative_to(ROOT / "docs").as_posix() for p in (ROOT / "docs").rglob("*.md")]
    assert pages and [p for p in pages if p not in navigation] == []
