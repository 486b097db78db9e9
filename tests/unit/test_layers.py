"""Folders are layers: imports point one way, and private names of torch stand behind one door. Nothing is run for it."""

from __future__ import annotations

import ast
import functools
import pathlib
import re
from collections.abc import Iterator

import pytest
from layout_page import ORDER, PAGE, REPOSITORY, ROOT, first_paragraph, folder, modules, page

FILES = sorted(p.relative_to(ROOT).as_posix() for p in ROOT.rglob("*.py"))
WITHOUT_TORCH = ("foundation", "declaration", "variants", "artifact", "doctor", "assumptions")
OPTIONAL = (
    "rich",
    "typer",
    "jinja2",
    "fsspec",
    "z3",
    "hypothesis",
    "plotly",
    "pytest",
    "safetensors",
    "cryptography",
    "cloudpickle",
)
PRIVATE = re.compile(r"^torch\.(?!_check$)(_(?!_)|.*\._(?!_)|fx\.experimental)")


@functools.cache
def tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


@functools.cache
def imports(file: str, *, top_level: bool = False) -> tuple[str, ...]:
    """Every module that a file imports, dotted; a name taken from a package is dotted on."""
    found: list[str] = []
    for node in tree(file).body if top_level else ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(found)


def private_attributes(file: str) -> Iterator[str]:
    """torch._x reached as an attribute rather than imported."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            if re.fullmatch(r"torch(\.\w+)+", text) and PRIVATE.match(text):
                yield text


def target(name: str) -> str | None:
    """The file of ours that an import reaches: anyshape._torch.versions.check is _torch/versions.py."""
    first, *parts = name.split(".")
    if first != "anyshape":
        return None
    while parts:
        if (path := ROOT.joinpath(*parts).with_suffix(".py")).exists():
            return path.relative_to(ROOT).as_posix()
        if (path := ROOT.joinpath(*parts, "__init__.py")).exists():
            return path.relative_to(ROOT).as_posix()
        parts.pop()
    return "__init__.py"


@functools.cache
def reached(file: str) -> frozenset[tuple[str, str]]:
    """The files in folders that an import reaches, at once or through modules of the public face, each with the way."""
    found: set[tuple[str, str]] = set()
    seen, todo = {file}, [(file, file)]
    while todo:
        here, way = todo.pop()
        for name in imports(here):
            there = target(name)
            if there is None or there in seen or there == "__init__.py":
                continue
            seen.add(there)
            step = f"{way} -> {there}"
            if folder(there):
                found.add((there, step))
            else:
                todo.append((there, step))
    return frozenset(found)


def test_every_folder_has_its_place_in_the_order() -> None:
    there = {folder(file) for file in FILES} - {""}
    assert there == set(ORDER), "tests/unit/layout_page.py has the order of the folders"
    assert len(set(ORDER)) == len(ORDER)


@pytest.mark.parametrize("file", [f for f in FILES if folder(f)])
def test_layers_point_one_way(file: str) -> None:
    own = ORDER.index(folder(file))
    upward = [way for there, way in sorted(reached(file)) if ORDER.index(folder(there)) > own]
    assert not upward, f"imports from a folder above: {upward}"


def test_modules_do_not_import_one_another_in_a_circle() -> None:
    done: set[str] = set()

    def visit(file: str, above: tuple[str, ...]) -> None:
        assert file not in above, f"a circle: {' -> '.join((*above[above.index(file) :], file))}"
        if file not in done:
            for there in filter(None, map(target, imports(file, top_level=True))):
                if there != file and not there.endswith("__init__.py"):
                    visit(there, (*above, file))
            done.add(file)

    for file in FILES:
        visit(file, ())


def test_folders_run_nothing_when_they_are_imported() -> None:
    """But for the check of torch's version, the table of rules, and names that are given on."""
    busy = [f for f in FILES if f.endswith("/__init__.py") and len(tree(f).body) > 1]
    assert busy == ["_torch/__init__.py", "declaration/__init__.py", "fuzz/__init__.py", "ops/__init__.py"]


def is_without_torch(file: str) -> bool:
    said = ast.get_docstring(tree(file)) or ""
    return folder(file) in WITHOUT_TORCH or "nothing of torch" in " ".join(said.split())


@pytest.mark.parametrize("file", [f for f in FILES if is_without_torch(f)])
def test_some_parts_know_nothing_of_torch(file: str) -> None:
    """Nor does what they import."""
    ours = [f for f, _ in reached(file)]
    known = [f"{f}: {name}" for f in (file, *ours) for name in imports(f) if name.split(".")[0] == "torch"]
    assert not known and not [f for f in ours if f.startswith("_torch/")]


@pytest.mark.parametrize("file", [f for f in FILES if not f.startswith("_torch/")])
def test_private_names_of_torch_stand_behind_one_door(file: str) -> None:
    names = [name for name in (*imports(file), *private_attributes(file)) if PRIVATE.match(name)]
    # torch._check is documented, and public in all but name.
    assert [n for n in names if not n.startswith("torch._check")] == []


@pytest.mark.parametrize("file", FILES)
def test_optional_packages_are_imported_where_they_are_used(file: str) -> None:
    early = [name for name in imports(file, top_level=True) if name.split(".")[0] in OPTIONAL]
    assert not early, f"{file} imports {early} when it is imported"


@pytest.mark.parametrize("file", [f for f in FILES if f != "_torch/versions.py"])
def test_no_version_is_compared(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    assert not re.search(r"torch\.__version__\s*[<>=!]|TorchVersion|version\.parse", text)


@pytest.mark.parametrize("file", FILES)
def test_every_module_says_what_it_owns(file: str) -> None:
    """In a first line that is one sentence, and that no other module has."""
    said = first_paragraph(ROOT / file)
    assert said.endswith(".") and len(said) < 240, f"{file} has no docstring that begins with a sentence"


def test_no_two_modules_of_torch_have_one_name() -> None:
    """A repair is named after its module."""
    names = [m.rpartition("/")[2] for m in modules() if m.startswith("_torch/")]
    assert sorted(set(names)) == sorted(names)


def test_the_table_of_modules_is_that_of_their_docstrings() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python tests/unit/layout_page.py"


PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_modules_that_a_page_names_are_there(path: pathlib.Path) -> None:
    folders = "|".join({name.partition("/")[0] for name in ORDER})
    named = re.findall(rf"`(?:src/anyshape/)?((?:{folders})/[\w/]*?)(?:\.py)?/?`", path.read_text(encoding="utf-8"))
    gone = [n for n in named if not (ROOT / n).is_dir() and not (ROOT / f"{n}.py").exists()]
    assert not gone, f"{path.name} names modules that are not there: {gone}"
