"""Imports point one way, and private names of torch stand behind one door. Read from the source, so nothing is run."""

from __future__ import annotations

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2] / "src" / "anyshape"
MODULES = sorted(p.relative_to(ROOT).as_posix() for p in ROOT.rglob("*.py"))

# From the ground up. A module imports from its own layer and from those before it; a folder stands for what is in it.
LAYERS: tuple[tuple[str, ...], ...] = (
    (
        "_version",
        "plain_text",
        "local_files",
        "interrupts",
        "errors",
        "programs",
        "answers",
        "orders",
        "questions",
        "wording",
        "keys",
        "limits",
        "option_types",
        "help_pages",
        "recompile_limits",
        "callers",
        "library_names",
    ),
    ("declaration", "solver", "explain", "tiers", "buckets", "artifact", "size_conditions"),
    ("bucket_tiers",),
    ("spec_file", "declared", "oblivious"),
    ("door", "doctor", "scripts"),
    ("recording", "ops"),
    ("_torch",),
    ("verify",),
    ("unseen", "local_classes", "merging"),
    (
        "_torch/nodes",
        "_torch/interpreted",
        "_torch/capture",
        "_torch/records",
        "dispatch",
        "admission_code",
        "assertions",
        "marks",
        "boundaries",
    ),
    ("attempts", "live_program"),
    ("refusals",),
    ("_torch/exporting", "engine"),
    ("_torch/modules",),
    ("regions",),
    ("ahead",),
    ("compiler",),
    ("exporter", "named_backend"),
    ("exported_behaviors",),
    ("exports",),
    ("testing", "hooks", "coverage", "observing", "repair_table"),
    ("auto", "ahead/precompile", "ahead/covering", "ahead/command"),
    ("demo", "fuzz"),
    ("cli",),
    ("__main__", "__init__"),
)
# Upward imports that are known, each with what has to happen for it to go.
KNOWN: set[tuple[str, str]] = set()
WITHOUT_TORCH = (
    "interrupts",
    "plain_text",
    "local_files",
    "errors",
    "programs",
    "explain",
    "tiers",
    "buckets",
    "bucket_tiers",
    "declaration",
    "solver",
    "spec_file",
    "recording",
    "answers",
    "orders",
    "questions",
    "wording",
    "keys",
    "limits",
    "option_types",
    "help_pages",
    "recompile_limits",
    "callers",
    "library_names",
    "declared",
    "oblivious",
    "door",
    "doctor",
    "scripts",
    "artifact",
)
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


def part(module: str) -> str:
    """errors.py is errors; _torch/capture.py is _torch."""
    return module.split("/")[0].removesuffix(".py")


def imports(module: str, *, top_level: bool = False) -> list[str]:
    """Every module that `module` imports, dotted; a name taken from a package is dotted on."""
    tree = ast.parse((ROOT / module).read_text())
    found: list[str] = []
    nodes = tree.body if top_level else list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def private_attributes(module: str) -> list[str]:
    """torch._x reached as an attribute rather than imported."""
    found = []
    for node in ast.walk(ast.parse((ROOT / module).read_text())):
        if isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            if re.fullmatch(r"torch(\.\w+)+", text) and PRIVATE.match(text):
                found.append(text)
    return found


def rank(name: str) -> int:
    """The layer of a module given as a path without its ending; the most exact entry counts."""
    ranks = {entry: i for i, layer in enumerate(LAYERS) for entry in layer}
    found = ranks.get(name, ranks.get(name.split("/")[0]))
    assert found is not None, f"{name} has no layer: give it one in LAYERS and in docs/explanation/layout.md"
    return found


def target(name: str) -> str:
    """The module of ours that an import reaches: anyshape._torch.capture.Retrace is _torch/capture."""
    parts = name.split(".")[1:]
    while parts and not (ROOT.joinpath(*parts).is_dir() or ROOT.joinpath(*parts).with_suffix(".py").exists()):
        parts.pop()
    return "/".join(parts) or "__init__"


@pytest.mark.parametrize("module", MODULES)
def test_layers_point_one_way(module: str) -> None:
    own = rank(module.removesuffix(".py"))
    ours = [name for name in imports(module) if name.split(".")[0] == "anyshape"]
    upward = [n for n in ours if rank(target(n)) > own and (module, n) not in KNOWN]
    assert not upward, f"{module} imports from a layer above it: {upward}"


@pytest.mark.parametrize("module", [m for m in MODULES if part(m) in WITHOUT_TORCH])
def test_some_parts_know_nothing_of_torch(module: str) -> None:
    known = [name for name in imports(module) if name.split(".")[0] == "torch" or name.startswith("anyshape._torch")]
    assert not known


@pytest.mark.parametrize("module", [m for m in MODULES if part(m) != "_torch"])
def test_private_names_of_torch_stand_behind_one_door(module: str) -> None:
    names = [name for name in (*imports(module), *private_attributes(module)) if PRIVATE.match(name)]
    # torch._check is documented, and public in all but name.
    assert [n for n in names if not n.startswith("torch._check")] == []


@pytest.mark.parametrize("module", MODULES)
def test_optional_packages_are_imported_where_they_are_used(module: str) -> None:
    early = [name for name in imports(module, top_level=True) if name.split(".")[0] in OPTIONAL]
    assert not early, f"{module} imports {early} when it is imported"


@pytest.mark.parametrize("module", [m for m in MODULES if m != "_torch/versions.py"])
def test_no_version_is_compared(module: str) -> None:
    text = (ROOT / module).read_text()
    assert not re.search(r"torch\.__version__\s*[<>=!]|TorchVersion|version\.parse", text)


@pytest.mark.parametrize("module", [m for m in MODULES if not m.endswith("__init__.py")])
def test_every_module_says_what_it_owns(module: str) -> None:
    assert ast.get_docstring(ast.parse((ROOT / module).read_text())), f"{module} has no docstring"


def test_the_layout_page_names_every_part() -> None:
    page = (ROOT.parents[1] / "docs" / "explanation" / "layout.md").read_text()
    parts = {part(m) for m in MODULES} - {"__init__", "_torch"}
    seams = {m.removesuffix(".py") for m in MODULES if m.startswith("_torch/") and not m.endswith("__init__.py")}
    missing = [name for name in sorted(parts | seams) if f"`{name}`" not in page and f"`{name}/`" not in page]
    assert not missing, f"docs/explanation/layout.md does not say what these own: {missing}"
