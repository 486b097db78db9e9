"""Runs tests of a checkout in one mode, a process for some of them at a time, past crashes and hangs.

Owns the process, its time, and the lines it leaves: a run that was stopped goes on from them.
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

PLUGIN = pathlib.Path(__file__).parent / "plugin"
MODES = ("stock", "anyshape")
_SPARE = 60.0  # seconds that a test has for ending itself, once its time is over

Results = dict[str, dict[str, Any]]


class Run:
    """The tests of one checkout; results are files in a directory."""

    def __init__(self, tests: pathlib.Path, results: pathlib.Path, *, timeout: float, at_once: int) -> None:
        self.tests, self.results = tests.resolve(), results.resolve()
        self.timeout, self.at_once = timeout, at_once
        self.results.mkdir(parents=True, exist_ok=True)

    def collected(self, file: str, only: str = "") -> list[str]:
        """The ids of a file's tests, as pytest gives them."""
        kept = self._path(file, "ids")
        if not kept.exists():
            chosen = ["-k", only] if only else []
            command = [*self._pytest(), "--collect-only", *chosen, file]
            out = subprocess.run(command, cwd=self.tests, env=self._env("stock", None), capture_output=True, text=True)
            ids = [line for line in out.stdout.splitlines() if "::" in line and " " not in line.partition("[")[0]]
            if not ids:
                raise RuntimeError(f"no tests in {file}:\n{out.stdout[-2000:]}{out.stderr[-2000:]}")
            kept.write_text("\n".join(ids) + "\n")
        return kept.read_text().splitlines()

    def of(self, file: str, mode: str) -> Results:
        """The outcomes so far, by test."""
        return {line["id"]: line for line in _lines(self._path(file, f"{mode}.jsonl")) if line["kind"] == "end"}

    def run(self, file: str, mode: str, ids: Sequence[str], say: Callable[[str], None], until: float = 0.0) -> None:
        """Run those of these tests that have not been run; `until` is when to stop."""
        lines = self._path(file, f"{mode}.jsonl")
        while True:
            self._close(lines, "crashed", "the process ended")
            done = self.of(file, mode)
            left = [i for i in ids if i not in done]
            if not left or (until and time.time() > until):
                return
            say(f"{file} {mode}: {len(ids) - len(left)} of {len(ids)}")
            self._start(mode, lines, left[: self.at_once], until)
            if until and time.time() > until:
                return
            if _last(lines).get("kind") != "start" and not any(i in self.of(file, mode) for i in left):
                raise RuntimeError(f"no test of {file} was run; see {lines.with_suffix('.log')}")

    def forget(self, file: str, mode: str, ids: Iterable[str]) -> None:
        """Tests that are to be run once more."""
        lines, again = self._path(file, f"{mode}.jsonl"), set(ids)
        kept = [line for line in _lines(lines) if line["id"] not in again]
        lines.write_text("".join(json.dumps(line) + "\n" for line in kept))

    def _start(self, mode: str, lines: pathlib.Path, ids: Iterable[str], until: float) -> None:
        """One process, watched: a test that does not end is ended with it."""
        with tempfile.TemporaryDirectory() as folder:
            names = pathlib.Path(folder, "ids")
            names.write_text("\n".join(ids) + "\n")
            command = [*self._pytest(), f"--timeout={self.timeout}", "--timeout-method=signal", f"@{names}"]
            with open(lines.with_suffix(".log"), "a") as log:
                child = subprocess.Popen(command, cwd=self.tests, env=self._env(mode, lines), stdout=log, stderr=log)
            try:
                while child.poll() is None:
                    time.sleep(0.2)
                    last = _last(lines)
                    if last.get("kind") == "start" and time.time() - last["time"] > self.timeout + _SPARE:
                        child.kill()
                        child.wait()
                        self._close(lines, "hung", f"not done after {self.timeout:.0f} s")
                    elif until and time.time() > until:
                        raise KeyboardInterrupt
            except KeyboardInterrupt:  # the test under way has not crashed
                child.kill()
                child.wait()
                self._forget_started(lines)
                if not until:
                    raise

    def _close(self, lines: pathlib.Path, outcome: str, text: str) -> None:
        last = _last(lines)
        if last.get("kind") == "start":
            end = {"kind": "end", "id": last["id"], "outcome": outcome, "seconds": 0.0, "text": text}
            with open(lines, "a") as file:
                file.write(json.dumps({**end, "fallbacks": {}, "compiled": 0, "notes": []}) + "\n")

    def _forget_started(self, lines: pathlib.Path) -> None:
        if _last(lines).get("kind") == "start":
            kept = lines.read_text().splitlines()[:-1]
            lines.write_text("".join(f"{line}\n" for line in kept))

    def _path(self, file: str, ending: str) -> pathlib.Path:
        return self.results / f"{file.removesuffix('.py').replace('/', '.')}.{ending}"

    def _pytest(self) -> list[str]:
        without = ("anyshape_pytest", "cacheprovider", "logging", "xdist", "randomly")
        options = ["--noconftest", *(f"-pno:{name}" for name in without), "-panyshape_in_place"]
        looks = [
            "-q",
            "-Wignore",
            "--tb=short",
            "--no-header",
            "-oaddopts=",
            "--rootdir",
            str(self.tests),
            "-c/dev/null",
        ]
        return [sys.executable, "-m", "pytest", *options, *looks]

    def _env(self, mode: str, lines: pathlib.Path | None) -> dict[str, str]:
        folders = [PLUGIN, self.tests, self.tests / "inductor", self.tests / "dynamo"]
        path = os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])
        own = {
            "PYTHONPATH": path,
            "PYTHONDONTWRITEBYTECODE": "1",
            "ANYSHAPE_CONFORMANCE_MODE": mode,
            # The cache of each mode is its own, and is kept: most of the time goes into compilers of C++.
            "TORCHINDUCTOR_CACHE_DIR": str(self.results / "cache" / mode),
            "INDUCTOR_TEST_DISABLE_FRESH_CACHE": "1",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }
        return {**os.environ, **own, **({} if lines is None else {"ANYSHAPE_CONFORMANCE_LINES": str(lines)})}


def sample(ids: Sequence[str], most: int | None, seed: int) -> list[str]:
    """At most so many of them, in their order."""
    if most is None or most >= len(ids):
        return list(ids)
    chosen = set(random.Random(seed).sample(range(len(ids)), most))
    return [test for i, test in enumerate(ids) if i in chosen]


def _lines(path: pathlib.Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def _last(path: pathlib.Path) -> dict[str, Any]:
    """The last line that is whole."""
    if not path.exists():
        return {}
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 60_000))
        tail = file.read().splitlines()
    try:
        return json.loads(tail[-1]) if tail else {}  # type: ignore[no-any-return]
    except ValueError:  # it is being written
        return {}
