"""Traces that torch wrote: read on an interpreter without torch, whole or damaged."""

from __future__ import annotations

import gzip
import json
import os
import pathlib
import random
import subprocess
import sys
from collections.abc import Callable

import pytest

import anyshape
from anyshape.doctor import trace
from anyshape.errors import DoctorError

RECORDED = sorted((pathlib.Path(__file__).parent / "trace").glob("*.log.gz"))
TEXT = {path.name: gzip.decompress(path.read_bytes()) for path in RECORDED}
ONE = TEXT[RECORDED[0].name]
WITHOUT_TORCH = """
import importlib.abc, sys

class NoTorch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "sympy", "numpy"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoTorch())
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "torch" else find(name, package)
from anyshape import cli
cli.main()
"""


def folder(path: pathlib.Path, content: bytes, name: str = "dedicated_log_torch_trace_x.log") -> pathlib.Path:
    path.mkdir(exist_ok=True)
    (path / name).write_bytes(content)
    return path


@pytest.mark.parametrize("name", list(TEXT))
def test_a_recorded_trace_is_understood(name: str, tmp_path: pathlib.Path) -> None:
    report = trace.read(folder(tmp_path / "trace", TEXT[name]))
    assert not report.problems
    found = {(f.code, f.argument, f.dim, f.line) for f in report.findings}
    assert report.findings[0].code == "D130" and report.findings[0].function == "named"
    assert {("D107", "n", None, 5), ("D103", "x", 0, 10), ("D122", "", None, 17), ("D107", "name", None, 22)} <= found
    assert any(f.code == "D101" and (f.argument, f.dim) == ("x", 0) for f in report.findings)
    assert (report.compiles, report.refused) == (11, 1) and report.seconds > 0


def test_a_trace_is_read_without_torch(tmp_path: pathlib.Path) -> None:
    where = folder(tmp_path / "trace", ONE)
    target = tmp_path / "report.json"
    source = pathlib.Path(anyshape.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, "doctor", "--from", str(where), "--json", str(target)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(source)},
    )
    assert done.returncode == 0, done.stderr
    assert "D130" in done.stderr
    assert json.loads(target.read_text())["findings"][0]["code"] == "D130"


def test_without_torch_everything_else_says_so(tmp_path: pathlib.Path) -> None:
    text = WITHOUT_TORCH.replace("from anyshape import cli\ncli.main()", "import anyshape; anyshape.compile")
    source = pathlib.Path(anyshape.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(source)}
    )
    assert done.returncode == 1 and "AS001: torch is not installed" in done.stderr


def _lines(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[bytes], bytes]:
    return lambda content: b"\n".join(change(content.split(b"\n")))


def _scrambled(content: bytes) -> bytes:
    """One byte in a thousand is another one."""
    chosen, changed = random.Random(0), bytearray(content)
    for _ in range(len(changed) // 1000):
        changed[chosen.randrange(len(changed))] = chosen.randrange(256)
    return bytes(changed)


# What is done to a trace, and whether something of it can still be read.
DAMAGE: dict[str, tuple[Callable[[bytes], bytes], bool]] = {
    "cut in half": (lambda c: c[: len(c) // 2], True),
    "cut in a line": (lambda c: c[: c.rindex(b'"compilation_metrics"') + 40], True),
    "cut at the start": (lambda c: c[len(c) // 2 :], True),
    "cut in a character": (lambda c: c[:-1] + b"\xe2\x82", True),
    "one byte in a thousand": (_scrambled, True),
    "every tenth line gone": (_lines(lambda ls: [x for i, x in enumerate(ls) if i % 10]), True),
    "every second line gone": (_lines(lambda ls: ls[::2]), True),
    "lines in reverse": (_lines(lambda ls: ls[::-1]), True),
    "no payloads": (_lines(lambda ls: [x for x in ls if not x.startswith(b"\t")]), True),
    "only payloads": (_lines(lambda ls: [x for x in ls if x.startswith(b"\t")]), False),
    "no strings": (_lines(lambda ls: [x for x in ls if b'{"str"' not in x]), True),
    "no metrics": (_lines(lambda ls: [x for x in ls if b'{"compilation_metrics"' not in x]), True),
    "windows ends": (lambda c: c.replace(b"\n", b"\r\n"), True),
    "nulls between": (lambda c: c.replace(b"\n", b"\n\x00\n"), True),
    "a byte order mark": (lambda c: b"\xef\xbb\xbf" + c, True),
    "utf-16": (lambda c: c.decode().encode("utf-16"), False),
    "gzip": (gzip.compress, False),
    "json broken": (lambda c: c.replace(b'"compile_id": ', b'"compile_id" '), True),
    "metrics a list": (
        lambda c: c.replace(b'{"compilation_metrics": {', b'{"compilation_metrics": [], "was": {'),
        True,
    ),
    "times as text": (lambda c: c.replace(b'"start_time": 1', b'"start_time": "x", "s": 1'), True),
    "stack a number": (
        lambda c: c.replace(b'"dynamo_start": {"stack": [', b'"dynamo_start": {"stack": 5, "was": ['),
        True,
    ),
    "ids null": (lambda c: c.replace(b'"compile_id": "', b'"compile_id": null, "was": "'), True),
    "reasons foreign": (lambda c: c.replace(b"\t0/0: ", b"\tno guard: "), True),
    "ranks": (_lines(lambda ls: [b"[rank3]:" + x if x.startswith(b"V") else x for x in ls]), True),
    "empty": (lambda c: b"", False),
    "one new line": (lambda c: b"\n", False),
    "a program": (lambda c: b"import torch\nprint(1)\n", False),
    "a picture": (lambda c: b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20, False),
    "json lines": (lambda c: b'{"event": "run"}\n{"event": "end"}\n', False),
    "another log": (lambda c: b"2026-01-01 12:00:00 INFO server started\n" * 50, False),
    "a log of glog": (lambda c: b"I0101 12:00:00.000000 1 main.cc:1] started\n" * 50, False),
    "deep json": (lambda c: b"V0101 12:00:00.000000 1 a.py:1] " + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"\n", False),
}


def test_there_is_enough_damage() -> None:
    assert len(DAMAGE) >= 30


@pytest.mark.parametrize("name", list(DAMAGE))
def test_what_can_be_read_of_a_damaged_file_is_shown(name: str, tmp_path: pathlib.Path) -> None:
    damage, readable = DAMAGE[name]
    where = folder(tmp_path / "trace", damage(ONE))
    if not readable:
        with pytest.raises(DoctorError, match="nothing in here was written by TORCH_TRACE"):
            trace.read(where)
        return
    report = trace.read(where)
    assert str(report) and json.dumps(report.json())
    # Beside a whole file nothing of the whole one is lost.
    both = trace.read(folder(where, ONE, "whole.log"))
    assert {f.code for f in both.findings} >= {"D130", "D107", "D122"}


def test_the_line_that_could_not_be_read_is_named(tmp_path: pathlib.Path) -> None:
    lines = ONE.split(b"\n")
    lines.insert(3, b"this is not mine")
    report = trace.read(folder(tmp_path / "trace", b"\n".join(lines)))
    assert report.problems == ("dedicated_log_torch_trace_x.log:4: not a line of a trace: 'this is not mine'",)
    assert "not read: dedicated_log_torch_trace_x.log:4" in str(report)
