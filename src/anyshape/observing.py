"""Observing from inside a program: `anyshape.observe()`, and the child process of `anyshape doctor`.

Owns what starts and ends an observation. What is seen is the seam's, what it means the doctor's.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import random
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch

from anyshape import compiler, hooks
from anyshape._torch.observe import compilation_hooks as seam
from anyshape._torch.observe import trial
from anyshape._torch.runtime import compiled_modules
from anyshape.doctor import scripts
from anyshape.doctor.edits import Edit
from anyshape.doctor.event_log import Memory, Writer
from anyshape.doctor.events import EagerCalls, End, ProgramMade
from anyshape.doctor.findings import Finding
from anyshape.doctor.launch import VARIABLE
from anyshape.doctor.report import Report
from anyshape.engine.engine import Engine, engines
from anyshape.errors import DeclarationError
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
def observe(*, sample: float = 1.0, limit: int = 10_000, code: bool = False) -> Iterator[Observation]:
    """Observe every compilation of stock torch and of anyshape in this block, and report recompiles.

    `sample` is the share of calls that are counted (0 for none). At most `limit` events are kept, the newest, so that
    a server can be observed as long as it runs. `code` also keeps the graph and the generated code of each compilation
    for the page.
    """
    if not isinstance(sample, (int, float)) or not 0 <= sample <= 1:
        raise _not_an_option("sample", "a share of the calls, from 0 to 1", sample, fix="sample=0.01")
    if type(limit) is not int or limit < 1:
        raise _not_an_option("limit", "a number of events, 1 or more", limit, fix="limit=10_000")
    memory = Memory(limit)
    observer = seam.Observer(memory, sample=sample, code=code)
    observer.start(tuple(sys.argv))
    with watching(observer):
        yield Observation(memory, observer)


def _not_an_option(name: str, what: str, value: object, *, fix: str) -> DeclarationError:
    where = f"anyshape.observe({name}=...)"
    return DeclarationError(f"{name} is {what}", where=where, value=repr(value)[:80], fix=fix, code="AS007")


@contextlib.contextmanager
def watching(observer: seam.Observer) -> Iterator[None]:
    """The hooks of the seam, and anyshape's own programs and calls without one."""
    fallbacks = _Fallbacks(observer)

    def made(program: Program) -> None:
        observer.note(_program(program, observer.now()))  # every observation hears of it on its own

    compiler.observers.append(made)
    observer.flushing.append(fallbacks.emit)
    try:
        with seam.watching(observer):
            yield
    finally:
        compiler.observers.remove(made)


class _Fallbacks:
    """Calls that anyshape ran eagerly during an observation."""

    def __init__(self, observer: seam.Observer) -> None:
        self._observer = observer
        self._said: weakref.WeakKeyDictionary[Engine, int] = weakref.WeakKeyDictionary()
        for engine in list(engines):
            self._said[engine] = engine.fallbacks.total()

    def emit(self) -> None:
        """Say what has been counted since the last time."""
        for engine in list(engines):
            total = engine.fallbacks.total()
            new = total - self._said.get(engine, 0)
            if new > 0:
                self._said[engine] = total
                now = self._observer.now()
                self._observer.note(EagerCalls("", engine.name, "", 0, new, now, os.getpid(), "anyshape"))


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
    sink = Writer(order["events"])
    observer = seam.Observer(sink, code=not order["results"])
    observer.start((order["kind"], *order["arguments"]))
    changes = [_edit(e) for e in order["edits"]]
    with scripts.edited(changes):
        execute(observer, order["kind"], order["arguments"], declared=order["declared"], results=order["results"])


def execute(
    observer: seam.Observer, kind: str, arguments: Sequence[str], *, declared: bool = False, results: bool = False
) -> None:
    """Run a program observed: as it is, or with what `anyshape.toml` declares turned on."""
    how, status = "returned", 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(_last_words(observer))
        if results:
            _seed()
            ours = (compiler.CompiledFunction, compiled_modules.CompiledModule)
            stack.enter_context(trial.recorded(observer.note, *ours))
        stack.enter_context(watching(observer))
        try:
            _RUNNERS[kind](arguments, declared)
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
            how = "exited"
            raise
        except BaseException as error:
            how, status = f"raised {type(error).__name__}", 1
            raise
        finally:
            observer.flush()
            observer.note(End(how, status, observer.now(), os.getpid()))


@contextlib.contextmanager
def _last_words(observer: seam.Observer) -> Iterator[None]:
    """Calls that were counted are written before a hard exit, too."""
    hard = os._exit

    def leave(status: int) -> None:
        with contextlib.suppress(Exception):
            observer.flush()
            observer.note(End("exited hard", status, observer.now(), os.getpid()))
        hard(status)

    atexit.register(observer.flush)
    with mock.patch.object(os, "_exit", leave):
        yield


def _edit(value: dict[str, Any]) -> Edit:
    line, column, last, end = value["span"]
    return Edit(value["file"], (line, column, last, end), value["old"], value["new"], value["decorates"])


def _seed() -> None:
    """Both runs of a comparison start alike."""
    random.seed(0)
    torch.manual_seed(0)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(0)


def _script(arguments: Sequence[str], declared: bool) -> None:
    script, *rest = arguments
    if declared:
        hooks.run(script, rest)
    else:
        scripts.run_path(script, rest)


def _module(arguments: Sequence[str], declared: bool) -> None:
    name, *rest = arguments
    if declared:
        hooks.run(name, rest, module=True)
    else:
        scripts.run_module(name, rest)


def _pytest(arguments: Sequence[str], declared: bool) -> None:
    import pytest

    sys.exit(int(pytest.main([*(["-p", "anyshape.auto"] if declared else []), *arguments])))


_RUNNERS: dict[str, Callable[[Sequence[str], bool], None]] = {"script": _script, "module": _module, "pytest": _pytest}
