"""The command: programs that fail, fork, thread and exit hard are reported; files are written; the exit status is the program's."""

from __future__ import annotations

import json
import pathlib
import sys
import textwrap
from typing import Any

import jsonschema
import pytest

import anyshape
from anyshape import cli
from anyshape.declaration import spec_file
from anyshape.doctor import command, writing
from anyshape.doctor.command import examine
from anyshape.doctor.findings import DISEASES
from anyshape.doctor.launch import Program
from anyshape.doctor.report import Report
from anyshape.errors import DoctorError

SCHEMA = json.loads((pathlib.Path(anyshape.__file__).parent / "schemas" / "doctor-report-1.json").read_text())
HEAD = """
import os, sys, threading
import torch

@torch.compile(backend="eager")
def f(x):
    return x * 2

for n in (8, 9):
    f(torch.ones(n))
"""
ENDINGS = {
    "fails": ("raise KeyError('mine')", 1, "raised KeyError"),
    "exits": ("sys.exit(3)", 3, "exited"),
    "exits_hard": ("os._exit(4)", 4, "exited hard"),
    "is_killed": ("import signal; os.kill(os.getpid(), signal.SIGKILL)", 128 + 9, "unknown"),
    "forks": ("pid = os.fork()\nif pid == 0:\n    f(torch.ones(3, 3)); os._exit(0)\nos.waitpid(pid, 0)", 0, "returned"),
    "threads": (
        "t = threading.Thread(target=f, args=(torch.ones(3, 3),))\nt.start(); t.join()\nassert f(torch.ones(4)).sum() == 8",
        0,
        "returned",
    ),
}


def write_program(folder: pathlib.Path, text: str) -> pathlib.Path:
    path = folder / "program.py"
    path.write_text(textwrap.dedent(text))
    return path


QUICK = ("exits_hard", "forks")  # a process each, and each imports torch


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in ENDINGS])
def test_the_report_survives_the_program(name: str, tmp_path: pathlib.Path, capfd: Any) -> None:
    ending, status, how = ENDINGS[name]
    path = write_program(tmp_path, HEAD + ending)
    target = tmp_path / "report.json"
    assert examine(Program("script", (str(path),)), json_file=target, live=False) == status
    report = json.loads(target.read_text())
    jsonschema.validate(report, SCHEMA)
    assert [f["line"] for f in report["findings"] if f["code"] == "D102"] == [7]
    assert report["summary"]["ended"] == how
    if name not in ("is_killed",):
        assert report["summary"]["calls"] >= 2
    if name in ("forks", "threads"):
        assert len(report["compilations"]) == 3, "the compilation in the other process or thread is seen, too"


@pytest.mark.slow
def test_files_modules_and_arguments(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__main__.py").write_text(HEAD + "print('given', sys.argv[1:], __name__)")
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "report.html"
    assert examine(Program("module", ("package", "--flag", "7")), html_file=page, live=True) == 0
    out, err = capfd.readouterr()
    assert "given ['--flag', '7'] __main__" in out
    assert "x.shape[0]: 8 -> 9" in err, "the live line says what changed"
    assert "D102" in err and "TORCH_COMPILE_DYNAMIC_SOURCES" in err
    assert "D102" in page.read_text()


@pytest.mark.slow
def test_tests_can_be_examined(tmp_path: pathlib.Path, capfd: Any) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(HEAD + "\ndef test_it():\n    assert f(torch.ones(4)).sum() == 8\n")
    target = tmp_path / "report.json"
    assert examine(Program("pytest", (str(path), "-q", "-p", "no:cacheprovider")), json_file=target, live=False) == 0
    assert json.loads(target.read_text())["findings"][0]["code"] == "D102"


@pytest.mark.slow
def test_verify_and_write(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    text = """
        import torch

        def f(a, out):
            return torch.linalg.cholesky(a, out=out)

        g = torch.compile(f, backend="eager")
        for n in (3, 4, 5, 6):
            g(torch.eye(2).repeat(n, 1, 1) * torch.rand(1).abs().add(1), torch.empty(n, 2, 2))
    """
    path = write_program(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(spec_file.VARIABLE, raising=False)
    target = tmp_path / "report.json"
    status = examine(Program("script", (str(path),)), write=True, json_file=target, live=False)
    report = json.loads(target.read_text())
    jsonschema.validate(report, SCHEMA)
    trial = report["findings"][0]["trial"]
    assert status == 0 and trial["outputs"] == "equal" and trial["compiles_after"] == 1 < trial["compiles_before"] == 4
    (entry,) = spec_file.read(tmp_path / "anyshape.toml").entries
    assert entry.target == "program:f" and entry.compile
    assert entry.words["shapes"] == {"a": "a_0 _ _", "out": "out_0 _ _"}
    # And what is written works in the way that is said.
    said = capfd.readouterr().err
    assert "trial 1 of at most" in said and "use it with: anyshape run" in said
    again = tmp_path / "again.json"
    assert examine(Program("module", ("anyshape", "run", str(path))), json_file=again, live=False) == 0
    assert json.loads(again.read_text())["summary"]["compiles"] == 1


NOWHERE = """
import pathlib
pathlib.Path("ran").touch()
"""


@pytest.mark.parametrize("option", ["json_file", "html_file"])
@pytest.mark.parametrize("place", ["nowhere/report.html", "."])
def test_a_report_that_could_not_be_written_is_refused_before_the_run(
    option: str, place: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_program(tmp_path, NOWHERE)
    target: dict[str, Any] = {option: tmp_path / place}
    with pytest.raises(anyshape.Error, match="the file cannot be written"):
        examine(Program("script", (str(path),)), **target)
    assert not (tmp_path / "ran").exists()


def test_what_a_page_needs_is_asked_for_before_the_run(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    path = write_program(tmp_path, NOWHERE)
    with pytest.raises(anyshape.Error, match="jinja2"):
        examine(Program("script", (str(path),)), html_file=tmp_path / "report.html")
    assert not (tmp_path / "ran").exists()


def test_a_report_that_cannot_be_written_after_all_is_not_lost(tmp_path: pathlib.Path, capsys: Any) -> None:
    def full(report: Report, path: pathlib.Path) -> None:
        raise OSError(28, "No space left on device")

    assert not command.save(Report.of([]), tmp_path / "report.json", full)
    assert "not written: No space left on device" in capsys.readouterr().err


def test_a_trace_is_not_written_to_the_file(tmp_path: pathlib.Path) -> None:
    with pytest.raises(DoctorError, match="a trace cannot be verified"):
        examine(None, trace_folder=tmp_path, write=True)


def test_what_the_file_says_already_stays(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "anyshape.toml"
    text = '# ours\n["__main__:f"]\nshapes = { a = "batch _ _" }\n\n["other:g"]\ncompile = true\n'
    added = writing._with_table(text, "__main__:f", {"compile": "true", "shapes": '{ a = "a_0 _ _" }'})
    path.write_text(added)
    assert [e.target for e in spec_file.read(path).entries] == ["__main__:f", "other:g"]
    assert spec_file.read(path).entries[0].words["shapes"] == {"a": "batch _ _"}
    assert spec_file.read(path).entries[0].compile
    assert added.startswith("# ours\n")
    assert writing._with_table(added, "__main__:f", {"compile": "true"}) == added


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["missing.py"], "AS060: there is no file 'missing.py'"),
        ([], "AS060: there is no program to examine"),
        (["-m", "missing_package.train"], "AS060: there is no module 'missing_package.train'"),
        (["--from", "nowhere"], "AS060: there is no such folder: nowhere"),
        (["--from", "nowhere", "--verify"], "AS060: a trace cannot be verified"),
    ],
)
def test_what_cannot_be_examined_is_said(
    words: list[str], says: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["anyshape", "doctor", *words])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    said = capsys.readouterr().err
    assert stopped.value.code == 2 and says in said and "fix:" in said


def test_every_code_has_its_part_in_the_documentation() -> None:
    page = (pathlib.Path(__file__).parents[2] / "docs" / "reference" / "findings.md").read_text()
    assert [code for code in DISEASES if f"## {code}:" not in page] == []
