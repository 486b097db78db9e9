"""What the commands that look at files of others print, where printing is not what it should be."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tracemalloc

import pytest
from test_attacks import BODY, FULL, raw
from test_trust import HERE, KEY

import anyshape
from anyshape.artifact import container, inspecting, opening
from anyshape.errors import ArtifactError, FileError
from anyshape.foundation import local_files

pytestmark = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no full disk to write to")
COMMANDS = (["inspect", "f.any"], ["verify", "f.any", "--anywhere"])


@pytest.fixture
def file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A file with text of many alphabets, longer than any pipe."""
    monkeypatch.chdir(tmp_path)
    facts = {
        **json.loads(json.dumps(FULL)),
        "name": "é漢\U0001f600",
        "key": "é",
        "programs": [{"behavior": "ß" * 99}] * 2000,
    }
    (tmp_path / "f.any").write_bytes(raw(json.dumps(facts).encode(), BODY))
    return tmp_path / "f.any"


def ran(command: list[str], to: str = "", **environment: str) -> subprocess.CompletedProcess[bytes]:
    source = str(pathlib.Path(anyshape.__file__).parents[1])
    line = f'"{sys.executable}" -m anyshape {" ".join(command)} {to}'
    return subprocess.run(
        line, shell=True, capture_output=True, env={**os.environ, "PYTHONPATH": source, **environment}
    )


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_whatever_the_encoding_is(file: pathlib.Path, command: list[str], encoding: str) -> None:
    found = ran(command, PYTHONIOENCODING=encoding)
    assert found.returncode == 0 and not found.stderr, found.stderr
    assert "ß" in found.stdout.decode(encoding) or b"xdf" in found.stdout or command[0] == "verify"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
@pytest.mark.parametrize("to", [">/dev/full", "| head -c 1", ">&-", "| true", ">/dev/full 2>&1"])
def test_wherever_it_goes(file: pathlib.Path, command: list[str], to: str) -> None:
    found = ran(command, to)
    assert b"Traceback" not in found.stderr and b"Exception ignored" not in found.stderr, found.stderr
    if to == ">/dev/full":
        assert found.returncode == 2 and b"AS061" in found.stderr


def test_a_trace_is_shown_in_any_encoding(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    head = "V1119 20:31:26.826000 1234 torch/x.py:22] "
    said = {"start_time": 1, "compile_id": "0/0", "co_name": "é", "co_filename": "漢.py", "fail_type": "ß"}
    (tmp_path / "trace.log").write_text(head + json.dumps({"compilation_metrics": said}), encoding="utf-8")
    for to, encoding in (("", "ascii"), ("2>/dev/full", "utf-8"), (">&- 2>&1", "utf-8")):
        found = ran(["doctor", "--from", "trace.log", "--json", "report.json"], to, PYTHONIOENCODING=encoding)
        assert b"Traceback" not in found.stderr, found.stderr


def test_a_file_that_begins_as_none_is_not_read(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "f.any"
    path.touch()
    os.truncate(path, container.MOST_BYTES)
    for begin in (b"", b"x" * 64, container.MAGIC + b"\2\0\0\0" + b"x" * 64):
        with open(path, "r+b") as file:
            file.write(begin)
        tracemalloc.start()
        try:
            for read in (
                lambda: inspecting.inspect(str(path)),
                lambda: inspecting.verify(str(path)),
                lambda: opening.open_file(path, key=KEY, here=HERE),
            ):
                with pytest.raises(ArtifactError) as caught:
                    read()
                assert caught.value.code in ("AS050", "AS052")
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()


def test_memory_that_is_gone_is_said_in_a_line() -> None:
    with pytest.raises(FileError, match="memory"), local_files.showing("f.any"):
        raise MemoryError
