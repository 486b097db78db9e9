"""The order of the folders of src/anyshape, and the table of modules in docs/explanation/layout.md.

Owns reading both from the source: what a folder holds is said by its `__init__.py`, and what a module owns by the first
line of its docstring. `python tests/unit/layout_page.py` writes the table.
"""

from __future__ import annotations

import ast
import pathlib
import re

REPOSITORY = pathlib.Path(__file__).parents[2]
ROOT = REPOSITORY / "src" / "anyshape"
PAGE = REPOSITORY / "docs" / "explanation" / "layout.md"
BEGIN, END = "<!-- modules, written by tests/unit/layout_page.py -->", "<!-- end of modules -->"

# From the ground up: a module imports from its own folder and from those before it. Modules in `src/anyshape` itself
# are the public face and the values that it shows; they stand wherever their own imports allow it.
ORDER: tuple[str, ...] = (
    "foundation",
    "declaration",
    "variants",
    "artifact",
    "doctor",
    "assumptions",
    "ops",
    "_torch",
    "_torch/repairs",
    "_torch/symbolic",
    "_torch/fake_runs",
    "_torch/graphs",
    "_torch/repairs/fake",
    "_torch/repairs/scalars",
    "_torch/repairs/dynamo",
    "_torch/repairs/functionalization",
    "_torch/repairs/cpp",
    "_torch/repairs/inductor",
    "_torch/runtime",
    "_torch/compile",
    "_torch/capture",
    "_torch/bundle",
    "_torch/export",
    "_torch/observe",
    "_torch/comparison",
    "admission",
    "engine",
    "ahead",
    "fuzz",
)


def modules() -> list[str]:
    """Every module but the `__init__` files, as a path without its ending."""
    paths = (p.relative_to(ROOT).with_suffix("") for p in ROOT.rglob("*.py") if p.name != "__init__.py")
    return sorted(p.as_posix() for p in paths)


def folder(module: str) -> str:
    """`_torch/capture/nodes` is in `_torch/capture`; a module of the public face is in no folder: ''."""
    return module.rpartition("/")[0]


def first_paragraph(path: pathlib.Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


def table() -> str:
    """The folders from the top down, each with its modules."""
    lines = ["## The public face", "", "Modules of `src/anyshape` itself.", "", *_rows("")]
    for name in reversed(ORDER):
        lines += ["", f"## {name}/", "", first_paragraph(ROOT / name / "__init__.py"), "", *_rows(name)]
    return "\n".join(lines)


def _rows(name: str) -> list[str]:
    own = [m for m in modules() if folder(m) == name and not m.startswith("__")]
    said = [(m.rpartition("/")[2], first_paragraph(ROOT / f"{m}.py").replace("|", "\\|")) for m in own]
    return ["| module | owns |", "| --- | --- |", *(f"| `{module}` | {text.rstrip('.')} |" for module, text in said)]


def page() -> str:
    """The page as it is to be: what stands around the table is written by hand."""
    text = PAGE.read_text(encoding="utf-8")
    assert BEGIN in text and END in text, f"{PAGE} has no place for the table"
    return re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n\n{table()}\n\n{END}", text, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
