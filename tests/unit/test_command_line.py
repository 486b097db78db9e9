"""The command line: what help says, what it waits for, and what a command says before it does anything."""

from __future__ import annotations

import argparse
import gzip
import json
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

from anyshape import cli, help_pages
from anyshape.errors import CODES, MissingDependencyError, NotCompilableError

ROOT = pathlib.Path(__file__).parents[2]
# Run with the arguments of a command; says what was imported and what it took.
_COSTS = """
import json, os, sys
from anyshape import cli
try:
    cli.run(sys.argv[1:])
except SystemExit:
    pass
times = os.times()
print("\\n" + json.dumps([sorted(m for m in sys.modules if "." not in m), times.user + times.system]))
"""


def commands() -> dict[str, cli.Parser]:
    actions = cli.build()._actions
    return dict(next(a for a in actions if isinstance(a, argparse._SubParsersAction)).choices)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("trace")
    (folder / "torch.log").write_bytes(gzip.decompress((ROOT / "tests/doctor/trace/torch_2.13.log.gz").read_bytes()))
    return str(folder)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The smallest file that `inspect` reads."""
    from anyshape.artifact import container, manifest

    facts = manifest.compose(
        name="f", environment={}, source={}, declaration={}, weights="live", programs=[{"behavior": "every size"}], key="k"
    )  # fmt: skip
    file = tmp_path_factory.mktemp("artifact") / "f.any"
    file.write_bytes(container.pack(facts, {}))
    return str(file)


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["help", "AS020"], ["inspect"], ["doctor", "--from"]], ids=" ".join
)
def test_what_needs_no_torch_does_not_wait_for_it(words: list[str], artifact: str, trace: str) -> None:
    words = words + {"inspect": [artifact], "--from": [trace]}.get(words[-1], [])
    ran = [
        subprocess.run([sys.executable, "-c", _COSTS, *words], capture_output=True, text=True, timeout=120)
        for _ in range(3)
    ]
    assert all(done.returncode == 0 for done in ran), ran[0].stderr
    costs = [json.loads(done.stdout.splitlines()[-1]) for done in ran]
    assert {"torch", "sympy", "numpy", "z3", "jinja2", "typer"}.isdisjoint(costs[0][0])
    if words[0] != "doctor":  # whose trace takes as long as it is
        assert min(seconds for _, seconds in costs) < 0.3


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    assert cli.run(["--version"]) == 0
    release = torch.__version__.partition("+")[0]  # what was installed may be called 2.15.0 or 2.15.0+cu132
    assert f"(torch {release}" in capsys.readouterr().out


@pytest.mark.parametrize("name", commands())
def test_help_is_sentences_and_an_example(name: str) -> None:
    parser = commands()[name]
    assert parser.epilog is not None and parser.epilog.startswith(f"Example:\n  anyshape {name}")
    assert parser.description is not None and parser.description.endswith(".")
    for action in parser._actions:
        if action.help and action.dest != "help":
            assert action.help[0].isupper() or action.help.split()[0] in ("embed", "anyshape,", "cpu"), action.help
            assert action.help.endswith((".", '".')), action.help


@pytest.mark.parametrize("name", commands())
def test_examples_are_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import shlex

    for line in (commands()[name].epilog or "").splitlines()[1:]:
        assert cli.build().parse_args(shlex.split(line, comments=True)[1:]).command is not None


@pytest.mark.parametrize(
    ("words", "own", "rest"),
    [
        (["--verify", "train.py", "--verify"], {"verify": True}, ["train.py", "--verify"]),
        (["--json", "a.json", "--no-live", "train.py"], {"json": pathlib.Path("a.json"), "live": False}, ["train.py"]),
        (["--json=a.json", "train.py", "-x"], {"json": pathlib.Path("a.json")}, ["train.py", "-x"]),
        (["-m", "package.module", "--verify", "-q"], {"module": "package.module", "verify": True}, ["-q"]),
        (["--pytest", "tests", "-k", "name"], {"tests": "tests"}, ["-k", "name"]),
        (["--verify", "--", "--odd.py", "-h"], {"verify": True}, ["--odd.py", "-h"]),
        (["--from", "folder"], {"trace": pathlib.Path("folder")}, []),
    ],
)
def test_what_follows_a_program_is_its_own(words: list[str], own: dict[str, Any], rest: list[str]) -> None:
    given = cli.build().parse_args(["doctor", *words])
    assert given.program == rest
    assert {name: getattr(given, name) for name in own} == own


@pytest.mark.parametrize("words", [["doctor", "--no-such-option", "x.py"], ["fuzz", "--no-such-option"], ["bogus"]])
def test_an_unknown_option_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.run(words)
    assert stopped.value.code == 2 and ("no-such-option" in (said := capsys.readouterr().err) or "bogus" in said)


# -- pages of errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", CODES)
def test_every_message_ends_in_a_command_that_prints_the_page(code: str) -> None:
    more = str(NotCompilableError("no", code=code)).splitlines()[-1]
    command = re.fullmatch(r"  more:  python -m anyshape help (AS\d{3})", more)
    assert command is not None
    page = help_pages.page(command[1])
    assert page.startswith(f"# {code}: ") and "](" not in page


def test_findings_of_the_doctor_have_pages_too() -> None:
    from anyshape.doctor.findings import DISEASES

    assert all(help_pages.page(code.lower()).startswith(f"## {code}:") for code in DISEASES)


def test_an_unknown_code_names_a_near_one() -> None:
    with pytest.raises(NotCompilableError, match=r"value: AS02O\n  fix:   python -m anyshape help AS0") as caught:
        help_pages.page("AS02O")
    assert f"errors are {min(CODES)} to {max(CODES)}, findings D101 to " in str(caught.value)


# -- what is missing is said first -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "words", "extra"),
    [
        ("hypothesis", ["fuzz", "--programs", "10"], "fuzz"),
        ("hypothesis", ["fuzz", "--assumptions"], "fuzz"),
        ("z3", ["fuzz", "--assumptions"], "solver"),
        ("expecttest", ["fuzz", "--opinfo", "--only", "add"], "fuzz"),
        ("fsspec", ["fuzz", "--corpus", "memory://corpus"], "urls"),
        ("z3", ["precompile", "no.such:f", "--shape", "x=n", "--out", "f.any", "--cover"], "solver"),
        (
            "safetensors",
            ["precompile", "no.such:f", "--shape", "x=n", "--out", "f.any", "--weights", "embed"],
            "weights",
        ),
        ("fsspec", ["precompile", "no.such:f", "--shape", "x=n", "--out", "memory://f.any"], "urls"),
        ("fsspec", ["inspect", "memory://f.any"], "urls"),
    ],
)
def test_a_missing_extra_is_said_before_anything_is_done(
    package: str, words: list[str], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError) as caught:
        cli.run(words)
    assert f'pip install "anyshape[{extra}]"' in str(caught.value)
    assert f"\n{extra} = [" in (ROOT / "pyproject.toml").read_text()


def test_a_campaign_that_ran_nothing_fails() -> None:
    with pytest.raises(NotCompilableError, match="ran no program"):
        cli.run(["fuzz", "--programs", "0"])
