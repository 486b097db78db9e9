"""anyshape precompile, inspect and verify."""

from __future__ import annotations

import json
import pathlib

import pytest
import served_callables as callables
import torch
from commands import run

import anyshape
from anyshape.errors import ArtifactError, Error


def test_from_precompile_to_load(tmp_path: pathlib.Path) -> None:
    file, key, report = (str(tmp_path / name) for name in ("f.any", "key", "report.json"))
    pathlib.Path(key).write_bytes(b"a secret of thirty-two bytes ...\n")
    ran = run(
        "precompile", "served_callables:branching", "--shape", "x=n m", "--shape", "y=m 7", "--where", "1 <= n <= 64",
        "--where", "1 <= m <= 32", "--cover", "--out", file, "--key", key,
    )  # fmt: skip
    assert ran.exit_code == 0, (ran.output, ran.exception)
    assert "program for x.shape[0] > 8" in ran.output and "save" in ran.output
    with torch.no_grad():
        f = anyshape.load(file, callables.branching, key=b"a secret of thirty-two bytes ...")
        for n in (3, 30):
            x, y = torch.randn(n, 4), torch.randn(4, 7)
            torch.testing.assert_close(f(x, y), callables.branching(x, y))
    ran = run("inspect", file, "--json", report)
    assert ran.exit_code == 0 and "holds executable code" in ran.output and "signature: hmac-sha256" in ran.output
    assert len(json.loads(pathlib.Path(report).read_text())["programs"]) == 2
    ran = run("verify", file, "--key", key)
    assert ran.exit_code == 0 and "the file is whole" in ran.output and "checked" in ran.output
    pathlib.Path(key).write_bytes(b"another secret of thirty bytes")
    assert isinstance(run("verify", file, "--key", key).exception, ArtifactError)
    data = bytearray(pathlib.Path(file).read_bytes())
    data[len(data) // 2] ^= 1
    pathlib.Path(file).write_bytes(data)
    for command in ("inspect", "verify"):
        error = run(command, file).exception
        assert isinstance(error, ArtifactError) and error.code == "AS050"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["served_callables:nothing", "--shape", "x=n"], "AS056"),
        (["no.such.module:f", "--shape", "x=n"], "AS056"),
        (["served_callables:picks", "--shape", "n m"], "AS007"),
        (["served_callables:picks", "--shape", "x=n:float7", "--shape", "i=k:int64"], "AS007"),
        (["served_callables:picks", "--shape", "x=n", "--call", "n=two"], "AS007"),
        (["served_callables:picks", "--shape", "x=n", "--key", "/no/such/file"], "AS053"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], code: str, tmp_path: pathlib.Path) -> None:
    error = run("precompile", *arguments, "--out", str(tmp_path / "f.any")).exception
    assert isinstance(error, Error) and error.code == code
    assert not (tmp_path / "f.any").exists()
