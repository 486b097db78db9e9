"""Every code block of the README and of every page runs as it stands, and what a comment beside an expression says is so.

A page is one program: its blocks run in order, in a folder of their own, as a reader would paste them. Quickly with a
backend that needs no C++ compiler; as they really stand, with Inductor, among the slow tests.
"""

from __future__ import annotations

import ast
import os
import pathlib
import re
import subprocess
import sys

import pytest

from anyshape.declaration import spec_file

ROOT = pathlib.Path(__file__).parents[2]
PAGES = ["README.md", *sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SAYS = re.compile(
    r"^(?P<expression>[^#=\n]*\S)\s{2,}# (?P<value>\[.*\]|\d+|True|False|None|\".*\")(?:[:,;].*)?$", re.MULTILINE
)
LANGUAGES = {"python", "toml", "text"}  # text is not run: signatures, output, command lines
SLOW = {  # minutes, a package of its own, or several compilers
    "docs/howto/hugging-face.md": "transformers",
    "docs/howto/accelerate-and-peft.md": "peft",
    "docs/reference/known-torch-bugs.md": "",
    "docs/howto/precompile-and-serve.md": "",
    "docs/howto/serve.md": "",
    "docs/howto/compile-on-one-rank.md": "",
}
# In front of a page: what torchrun gives a process, and a backend where one is asked for.
_BEFORE = """
def prepare():
    import functools, os, anyshape
    from anyshape import compiler
    real, backend = compiler.compile, os.environ.get("PAGE_BACKEND")
    def quick(fn=None, **options):
        needs_inductor = options.get("background") or options.get("distributed") == "one-rank" or "mode" in options
        if not needs_inductor:
            options.setdefault("backend", backend)
        return real(fn, **options) if fn is not None else functools.partial(quick, **options)
    if backend:
        anyshape.compile = compiler.compile = quick
prepare()
"""


def blocks(page: str, language: str) -> list[str]:
    return [body for name, body in BLOCK.findall((ROOT / page).read_text()) if name == language]


def checked(block: str) -> str:
    """The block with an assertion after each line that says what it gives."""
    lines = []
    for line in block.splitlines():
        lines.append(line)
        match = SAYS.match(line)
        if match is not None and _is_expression(match["expression"]):
            indent = line[: len(line) - len(line.lstrip())]
            lines.append(f"{indent}assert ({match['expression'].strip()}) == ({match['value']}), {match[0]!r}")
    return "\n".join(lines) + "\n"


def _is_expression(text: str) -> bool:
    try:
        ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        return False
    return True


def run(page: str, folder: pathlib.Path, backend: str) -> None:
    """A page in a process of its own; each block in a file of its own, so that torch finds the source."""
    files = [folder / "before.py"]
    files[0].write_text(_BEFORE)
    for number, block in enumerate(blocks(page, "python"), 1):
        files.append(folder / f"block_{number}.py")
        files[-1].write_text(checked(block))
    program = "scope = {'__name__': 'page'}\n" + "".join(
        f"exec(compile(open({str(f)!r}).read(), {str(f)!r}, 'exec'), scope)\n" for f in files
    )
    environment = os.environ | {
        "PAGE_BACKEND": backend, "PYTHONPATH": os.pathsep.join(sys.path),
        "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0",
    }  # fmt: skip
    if page == "docs/howto/accelerate-and-peft.md":  # accelerate would wrap the model in DDP
        environment = {k: v for k, v in environment.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, f"{page}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


WITH_CODE = [page for page in PAGES if blocks(page, "python")]


@pytest.mark.parametrize("page", [pytest.param(p, marks=pytest.mark.slow) if p in SLOW else p for p in WITH_CODE])
def test_runs(page: str, tmp_path: pathlib.Path) -> None:
    if SLOW.get(page):
        pytest.importorskip(SLOW[page])
    run(page, tmp_path, "" if page == "docs/reference/known-torch-bugs.md" else "aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in WITH_CODE if p != "docs/reference/known-torch-bugs.md"])
def test_runs_with_inductor(page: str, tmp_path: pathlib.Path) -> None:
    if SLOW.get(page):
        pytest.importorskip(SLOW[page])
    run(page, tmp_path, "")


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 1 + len(blocks("README.md", "python"))))
def test_a_block_of_the_readme_runs_by_itself(number: int, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "block.py"
    script.write_text(blocks("README.md", "python")[number - 1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]


def test_comments_that_say_a_value_are_checked() -> None:
    text = "len(f.programs)  # 1: one for all\nx = 3  # 4\n[p.behavior for p in g.programs]  # ['a', 'b']\nprint(3)  # plain text\n"
    lines = checked(text).splitlines()
    assert [line for line in lines if line.startswith("assert")] == [
        "assert (len(f.programs)) == (1), 'len(f.programs)  # 1: one for all'",
        "assert ([p.behavior for p in g.programs]) == (['a', 'b']), \"[p.behavior for p in g.programs]  # ['a', 'b']\"",
    ]


@pytest.mark.parametrize("page", PAGES)
def test_a_block_says_what_it_is(page: str) -> None:
    assert {name for name, _ in BLOCK.findall((ROOT / page).read_text())} <= LANGUAGES
    for block in blocks(page, "text"):  # code that hides from being run
        assert not re.search(r"^(import|from|with|def|class|@)\s?\w", block, re.MULTILINE), block


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "toml")])
def test_declarations_in_files_are_read(page: str, tmp_path: pathlib.Path) -> None:
    for block in blocks(page, "toml"):
        (tmp_path / "anyshape.toml").write_text(block)
        assert spec_file.read(tmp_path / "anyshape.toml").entries


@pytest.mark.parametrize("page", PAGES)
def test_commands_are_read(page: str) -> None:
    """A command line of ours on a page has a command and options that there are."""
    from anyshape import cli

    known = next(a for a in cli.build()._actions if a.dest == "help" or a.choices) and cli.build()
    commands = next(a.choices for a in known._actions if a.choices)
    for block in blocks(page, "text"):
        for line in re.findall(r"^(?:\$ )?anyshape ([a-z].*?)(?:\s{2,}#.*)?$", block, re.MULTILINE):
            words = line.split()
            assert words[0] in commands, line
            own = commands[words[0]]._option_string_actions
            ends = (i for i, w in enumerate(words[1:], 1) if w.endswith(".py") or words[i - 1] in ("-m", "--pytest"))
            upto = next(ends, len(words))
            options = {w.strip("[]").split("=")[0] for w in words[1:upto] if re.match(r"\[?--[a-z]", w)}
            assert options <= {*own}, line
