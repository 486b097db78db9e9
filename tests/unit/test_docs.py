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


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
BRITISH = re.compile(r"\b\w*(?:behaviour|colour|honour|favour|neighbour|specialis|recognis|optimis|initialis)\w*", re.I)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_what_a_page_names_is_there(page: pathlib.Path) -> None:
    """Scripts of ours, and targets of make."""
    text = page.read_text()
    scripts = re.findall(r"\b((?:benchmarks|examples)/[\w/]+\.py)\b", text)
    scripts += [f"{m.replace('.', '/')}" for m in re.findall(r"python -m (benchmarks\.[\w.]+)", text)]
    there = lambda name: (ROOT / name).exists() or (ROOT / f"{name}.py").exists()
    assert [s for s in scripts if not there(s)] == []
    targets = re.findall(r"(?:^|`)make ([a-z]+)\b", "\n".join(re.findall(r"`[^`\n]+`|^make .*$", text, re.MULTILINE)))
    assert [t for t in targets if t not in TARGETS] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_a_page_is_spelled_as_torch_is(page: pathlib.Path) -> None:
    prose = re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL))
    assert BRITISH.findall(prose) == []
