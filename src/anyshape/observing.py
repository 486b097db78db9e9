"""Observing from inside a program: `anyshape.observe()`, and the child process of `anyshape doctor`.

Owns what starts and ends an observation. What is seen is the seam's, what it means the doctor's.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import random
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch

from anyshape import compiler
from anyshape._torch import observe as seam
from anyshape._torch import trial
from anyshape.doctor.event_log import Memory, Writer
from anyshape.doctor.events import End, ProgramMade
from anyshape.doctor.findings import Finding, Remedy
from anyshape.doctor.launch import VARIABLE
from anyshape.doctor.report import Report
from anyshape.programs import Program


class Observation:
    """What has been seen so far. The report is made when it is asked for."""

    def __init__(self, memory: Memory, observer: seam.Observer) -> None:
        self._memory, self._observer = memory, observer

    @property
    def report(self) -> Report:
        self._observer.flush()
        lost = self._memory.dropped
        problems = [f"{lost} older events were let go; observe(limit=...) keeps more"] if lost else []
        return Report.of(self._memory.events, problems)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.report.findings

    @property
    def compiles(self) -> int:
        return self.report.compiles

    def json(self) -> dict[str, Any]:
        return self.report.json()

    def write_html(self, path: str | os.PathLike[str]) -> None:
        self.report.write_html(path)

    def print(self) -> None:
        self.report.print()

    def __str__(self) -> str:
        return str(self.report)

    def _repr_html_(self) -> str:
        return self.report._repr_html_()


@contextlib.contextmanager
def observe(*, sample: float = 1.0, limit: int = 10_000) -> Iterator[Observation]:
    """Watch every compilation of stock torch and of anyshape in this block, and say what is wrong.

    Every compilation is seen; of the calls that programs serve, the share `sample` is counted (0 for none). At most
    `limit` events are kept, the newest, so that a server can be watched for as long as it runs.
    """
    memory = Memory(limit)
    observer = seam.Observer(memory, sample=sample)
    observer.start(tuple(sys.argv))
    with watching(observer):
        yield Observation(memory, observer)


@contextlib.contextmanager
def watching(observer: seam.Observer) -> Iterator[None]:
    """The hooks of the seam, and anyshape's own programs."""

    def made(program: Program) -> None:
        observer.emit(_program(program, observer.now()))

    compiler.observers.append(made)
    try:
        with seam.watching(observer):
            yield
    finally:
        compiler.observers.remove(made)


def _program(program: Program, now: float) -> ProgramMade:
    return ProgramMade(
        name=program.name,
        file=program.file,
        line=program.line,
        behaviour=program.behavior,
        predicates=tuple((p.text, p.asked_by, p.file, p.line) for p in program.predicates),
        seconds=program.capture_seconds + program.compile_seconds + program.verify_seconds,
        time=now,
        pid=os.getpid(),
    )


# -- the child process of `anyshape doctor` ---------------------------------------------------------------------


def child() -> None:
    """Run the program named on the command line, observed, as `launch` asked for in the environment."""
    order = json.loads(os.environ.pop(VARIABLE))
    kind, arguments = order["kind"], list(order["arguments"])
    sink = Writer(order["events"])
    observer = seam.Observer(sink)
    observer.start((kind, *arguments))
    how, status = "returned", 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(_last_words(observer))
        remedies = [_remedy(r) for r in order["remedies"]]
        stack.enter_context(trial.settings(remedies))
        if order["results"]:
            _seed()
            instead = compiler.compile if any(r.kind == "anyshape" for r in remedies) else None
            stack.enter_context(trial.through(remedies, sink, instead))
        stack.enter_context(watching(observer))
        try:
            _RUNNERS[kind](arguments)
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
            how = "exited"
            raise
        except BaseException as error:
            how, status = f"raised {type(error).__name__}", 1
            raise
        finally:
            observer.flush()
            observer.emit(End(how, status, observer.now(), os.getpid()))


@contextlib.contextmanager
def _last_words(observer: seam.Observer) -> Iterator[None]:
    """Calls that were counted are written before a hard exit, too."""
    hard = os._exit

    def leave(status: int) -> None:
        with contextlib.suppress(Exception):
            observer.flush()
            observer.emit(End("exited hard", status, observer.now(), os.getpid()))
        hard(status)

    atexit.register(observer.flush)
    with mock.patch.object(os, "_exit", leave):
        yield


def _remedy(value: dict[str, Any]) -> Remedy:
    pairs = tuple((str(name), str(setting)) for name, setting in value["settings"])
    return Remedy(value["kind"], value["text"], value.get("toml", ""), pairs)


def _seed() -> None:
    """Both runs of a comparison start alike."""
    random.seed(0)
    torch.manual_seed(0)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(0)


def _script(arguments: Sequence[str]) -> None:
    sys.argv[:] = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
    runpy.run_path(arguments[0], run_name="__main__")


def _module(arguments: Sequence[str]) -> None:
    sys.argv[:] = arguments
    sys.path[0] = os.getcwd()
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


def _pytest(arguments: Sequence[str]) -> None:
    import pytest

    sys.exit(int(pytest.main(list(arguments))))


_RUNNERS: dict[str, Callable[[Sequence[str]], None]] = {"script": _script, "module": _module, "pytest": _pytest}
