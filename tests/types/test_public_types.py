"""The types of the public face, as a user's type checker sees them."""

from __future__ import annotations

import ast
import pathlib
import re
import subprocess
import sys

import pytest

import anyshape

SCRIPT = pathlib.Path(__file__).with_name("a_users_script.py")
SOURCE = pathlib.Path(anyshape.__file__).parent
WRONG = {n for n, line in enumerate(SCRIPT.read_text().splitlines(), 1) if "  # wrong: " in line}
# What a program gives that was loaded without the function it was made from: nobody knows.
UNKNOWABLE = {"load", "ExportedBehaviors.__call__"}


def test_there_are_ten_mistakes() -> None:
    assert len(WRONG) == 10


def check(command: list[str], tmp_path: pathlib.Path) -> set[int]:
    """The lines that a checker refuses, in a place where no configuration of ours is found."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.read_text())
    done = subprocess.run([*command, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    found = re.findall(r"^\s*\S*script\.py:(\d+)\S* ?-? ?error: (.*)$", done.stdout, re.MULTILINE)
    assert found, done.stdout + done.stderr
    return {int(line) for line, _ in found}


def test_mypy_finds_them_and_nothing_else(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mypy")
    monkeypatch.setenv("MYPYPATH", str(SOURCE.parent))
    cache = pathlib.Path(__file__).parents[2] / ".mypy_cache" / "a_users_script"  # torch takes a minute, once
    options = ["--strict", "--follow-imports", "silent", "--cache-dir", str(cache)]
    command = [sys.executable, "-m", "mypy", *options]
    assert check(command, tmp_path) == WRONG


def test_pyright_agrees(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("basedpyright")
    (tmp_path / "pyrightconfig.json").write_text(
        f'{{"typeCheckingMode": "standard", "extraPaths": ["{SOURCE.parent}"], "pythonVersion": "3.11"}}'
    )
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "-p", str(tmp_path)]
    assert check(command, tmp_path) == WRONG


# -- no Any ----------------------------------------------------------------------------------------------------


def definitions(tree: ast.Module, name: str) -> list[ast.stmt]:
    return [n for n in tree.body if getattr(n, "name", None) == name]


def overloaded(functions: list[ast.FunctionDef]) -> list[ast.FunctionDef]:
    """What a type checker sees of functions of one name: the overloads where there are such."""
    seen = [f for f in functions if any(ast.unparse(d).endswith("overload") for d in f.decorator_list)]
    return seen or functions


def annotations(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return [
        ast.unparse(a) for a in [*(x.annotation for x in every if x is not None), function.returns] if a is not None
    ]


def signatures(name: str, statements: list[ast.stmt]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    functions = [s for s in statements if isinstance(s, ast.FunctionDef)]
    found += [(name, a) for f in overloaded(functions) for a in annotations(f)]
    for kind in (s for s in statements if isinstance(s, ast.ClassDef)):
        methods = [m for m in kind.body if isinstance(m, ast.FunctionDef)]
        public = {m.name for m in methods if not m.name.startswith("_") or m.name in ("__call__", "__get__")}
        for method in sorted(public):
            found += signatures(f"{name}.{method}", [m for m in methods if m.name == method])
        fields = [f for f in kind.body if isinstance(f, ast.AnnAssign) and not ast.unparse(f.target).startswith("_")]
        found += [(f"{name}.{ast.unparse(f.target)}", ast.unparse(f.annotation)) for f in fields]
    return found


PUBLIC = {n: home for home, names in anyshape._HOMES.items() for n in names if home != "errors"}
PUBLIC |= {"explain": "explain", "expect_programs": "testing", "assert_any_shape": "testing"}


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_no_any_in_the_public_face(name: str) -> None:
    tree = ast.parse((SOURCE / f"{PUBLIC[name].replace('.', '/')}.py").read_text())
    found = signatures(name, definitions(tree, name))
    assert found, f"nothing is known of {name}"
    assert [f for f in found if re.search(r"\bAny\b", f[1]) and f[0] not in UNKNOWABLE] == []


def test_the_aliases_say_what_is_checked() -> None:
    """The words of a type are the words that are let in."""
    import typing

    from anyshape.declaration import options
    from anyshape.foundation import option_types

    for alias, words in (
        ("Layout", options.LAYOUTS),
        ("Semantics", options.SEMANTICS),
        ("OnNewBehavior", options.ON_NEW_BEHAVIOR),
    ):
        assert typing.get_args(getattr(option_types, alias)) == words


def test_the_keywords_of_compile_are_its_own() -> None:
    import inspect

    from anyshape.compiler import compile
    from anyshape.foundation.option_types import CompileOptions

    own = [p for p in inspect.signature(compile).parameters if p not in ("fn", "model")]
    assert own == list(CompileOptions.__annotations__)
