"""Programs of `programs/`, run in this interpreter, with and without the doctor."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import pathlib
import runpy
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from anyshape import compiler, observing
from anyshape._torch import observe, trial
from anyshape.doctor.event_log import Memory
from anyshape.doctor.events import Result
from anyshape.doctor.findings import Remedy
from anyshape.doctor.launch import Outcome
from anyshape.doctor.report import Report

FOLDER = pathlib.Path(__file__).parent / "programs"
CHANGED = ("recompile_limit", "capture_scalar_outputs")  # what a program sets for itself


@dataclasses.dataclass(frozen=True)
class Case:
    """A program and what is to be found in it: the first line of the file says."""

    path: pathlib.Path

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def words(self) -> list[str]:
        return self.path.read_text().splitlines()[0].split()[2:]

    @property
    def healthy(self) -> bool:
        return self.words == ["nothing"]

    @property
    def line(self) -> int:
        return next(i for i, text in enumerate(self.path.read_text().splitlines(), 1) if text.endswith("# here"))


CASES = [Case(path) for path in sorted(FOLDER.glob("*.py"))]


@contextlib.contextmanager
def as_before() -> Iterator[None]:
    """A program leaves settings behind that the next one must not find."""
    config = torch._dynamo.config
    before = {name: getattr(config, name) for name in CHANGED}
    torch._dynamo.reset()
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(config, name, value)


def execute(path: pathlib.Path) -> tuple[str, BaseException | None]:
    """Run a program; what it printed, and what it raised."""
    printed = io.StringIO()
    error: BaseException | None = None
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            runpy.run_path(str(path), run_name="__main__")
        except Exception as raised:
            error = raised
    return printed.getvalue(), error


def run_here(path: pathlib.Path, remedies: Sequence[Remedy] = ()) -> Outcome:
    """The child process of the doctor, without the process."""
    memory = Memory()
    observer = observe.Observer(memory)
    with as_before(), contextlib.ExitStack() as stack:
        stack.enter_context(trial.settings(remedies))
        instead = compiler.compile if any(r.kind == "anyshape" for r in remedies) else None
        stack.enter_context(trial.through(remedies, memory, instead))
        with observing.watching(observer):
            _, error = execute(path)
    found = memory.events
    return Outcome(Report.of(found), tuple(e for e in found if isinstance(e, Result)), int(error is not None))


@dataclasses.dataclass(frozen=True)
class Counted:
    """What torch itself counted in a run, and what the program printed."""

    graphs: int
    frames: int
    printed: str


def count_graphs(path: pathlib.Path) -> Counted:
    """A run with no doctor anywhere."""
    counters: Any = torch._dynamo.utils.counters
    with as_before():
        counters.clear()
        printed, _ = execute(path)
        return Counted(counters["stats"]["unique_graphs"], counters["frames"]["ok"], printed)


@functools.cache
def observed(path: pathlib.Path) -> tuple[Report, Counted]:
    """A run under observation: what the doctor says, and what torch itself counted."""
    memory = Memory()
    with observing.watching(observe.Observer(memory)):
        counted = count_graphs(path)
    return Report.of(memory.events), counted
