"""Programs of `programs/`, run in this interpreter, with and without the doctor."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import os
import pathlib
import runpy
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import torch

from anyshape import hooks, observing, testing
from anyshape._torch.observe import compilation_hooks
from anyshape.declaration import spec_file
from anyshape.doctor import launch, scripts
from anyshape.doctor.event_log import Memory
from anyshape.doctor.events import Result
from anyshape.doctor.findings import Remedy
from anyshape.doctor.report import Report
from anyshape.doctor.trials import Outcome

FOLDER = pathlib.Path(__file__).parent / "programs"
# What a program, or a remedy in it, sets for itself.
CHANGED = (
    "recompile_limit",
    "capture_scalar_outputs",
    "capture_dynamic_output_shape_ops",
    "allow_unspec_int_on_nn_module",
)
READ_BY = {  # torch reads these variables when it is imported
    "TORCH_COMPILE_DYNAMIC_SOURCES": "dynamic_sources",
    "TORCH_COMPILE_UNBACKED_SOURCES": "unbacked_sources",
}


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


def execute(path: pathlib.Path, *, declared: bool = False) -> tuple[str, BaseException | None]:
    """Run a program; what it printed, and what it raised."""
    printed = io.StringIO()
    error: BaseException | None = None
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if declared:
                hooks.run(str(path), [])
            else:
                runpy.run_path(str(path), run_name="__main__")
        except Exception as raised:
            error = raised
    return printed.getvalue(), error


def run_here(path: pathlib.Path, remedies: Sequence[Remedy] = ()) -> Outcome:
    """The child process of the doctor, without the process: remedies are made as `launch` and the child make them."""
    memory = Memory()
    observer = compilation_hooks.Observer(memory)
    declarations = [r.toml for r in remedies if r.toml]
    status = 0
    with as_before(), tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        stack.enter_context(as_variables(remedies))
        stack.enter_context(scripts.edited([e for r in remedies for e in r.edits]))
        if declarations:
            file = str(launch.declared(declarations, pathlib.Path(folder)))
            stack.enter_context(mock.patch.dict(os.environ, {spec_file.VARIABLE: file}))
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        try:
            observing.execute(observer, "script", [str(path)], declared=bool(declarations), results=True)
        except Exception:
            status = 1
    found = memory.events
    return Outcome(Report.of(found), tuple(e for e in found if isinstance(e, Result)), status)


@contextlib.contextmanager
def as_variables(remedies: Sequence[Remedy]) -> Iterator[None]:
    """What torch would have read from the environment."""
    found = {READ_BY[name]: value for name, value in launch.variables(remedies).items()}
    with torch.compiler.config.patch(**found) if found else contextlib.nullcontext():
        yield


@dataclasses.dataclass(frozen=True)
class Counted:
    """What torch itself counted in a run, and what the program printed."""

    programs: int  # graphs, and programs of anyshape
    failures: int
    printed: str
    error: str | None


def count_graphs(path: pathlib.Path, *, declared: bool = False, folder: pathlib.Path | None = None) -> Counted:
    """A run with no doctor anywhere; with `declared` as `anyshape run` makes it."""
    counters: Any = torch._dynamo.utils.counters
    with as_before(), contextlib.ExitStack() as stack:
        counters.clear()
        if declared and folder is not None:
            stack.enter_context(mock.patch.dict(os.environ, {spec_file.VARIABLE: str(folder / spec_file.FILE_NAME)}))
        ours = stack.enter_context(testing.expect_programs(10_000, at_most=True))
        printed, error = execute(path, declared=declared)
        made = len(ours.programs)
        stock = counters["stats"]["unique_graphs"] if not made else 0  # anyshape's captures are counted there, too
        failures = counters["frames"]["total"] - counters["frames"]["ok"]
        return Counted(made or stock, failures, printed, None if error is None else type(error).__name__)


@functools.cache
def observed(path: pathlib.Path) -> tuple[Report, Counted]:
    """A run under observation: what the doctor says, and what torch itself counted."""
    memory = Memory()
    with observing.watching(compilation_hooks.Observer(memory)):
        counted = count_graphs(path)
    return Report.of(memory.events), counted
