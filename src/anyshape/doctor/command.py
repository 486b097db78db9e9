"""`anyshape doctor`: what the command does.

Owns the order of things: check what is asked for, run or read, say, prove, write. Knows nothing of torch; a program
that is run has a process of its own.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import sys
from collections.abc import Callable
from unittest import mock

from anyshape.doctor import launch, page, trace, trials, writing
from anyshape.doctor.report import Report
from anyshape.errors import DoctorError
from anyshape.foundation import local_files


def examine(
    program: launch.Program | None,
    *,
    trace_folder: pathlib.Path | None = None,
    verify: bool = False,
    write: bool = False,
    json_file: pathlib.Path | None = None,
    html_file: pathlib.Path | None = None,
    live: bool = True,
) -> int:
    """Examine a program or a trace; the exit status is that of the program. `write` implies `verify`."""
    verify = verify or write
    _check_request(program, trace_folder, verify)
    outputs = [(path, make) for path, make in ((json_file, Report.write_json), (html_file, Report.write_html)) if path]
    for path, _ in outputs:
        check_output(path)
    report, to_write, status = _report(program, trace_folder, verify, write, live)
    report.print()
    for path, make in outputs:
        save(report, path, make)
    if write:
        _write(to_write, program)
    return status


def check_output(path: pathlib.Path) -> None:
    """Refuse, before anything is run, a file that could not be written after it."""
    if path.suffix == ".html":
        page.check()
    local_files.check_writable(path)


def save(report: Report, path: pathlib.Path, make: Callable[[Report, pathlib.Path], None]) -> bool:
    """Write a report that has been printed; a disk that has filled up meanwhile does not lose the others."""
    try:
        make(report, path)
    except OSError as error:
        print(f"{path}: not written: {error.strerror or error}", file=sys.stderr)
        return False
    return True


def _check_request(program: launch.Program | None, folder: pathlib.Path | None, verify: bool) -> None:
    if folder is not None:
        if verify:
            raise DoctorError(
                "a trace cannot be verified: the program is not there to be run again",
                where=f"--from {folder}",
                fix="anyshape doctor --verify script.py",
            )
        return
    if program is None:
        raise DoctorError("there is no program to examine", fix="anyshape doctor script.py")
    name = program.arguments[0]
    if program.kind == "script" and not pathlib.Path(name).is_file():
        raise DoctorError(f"there is no file {name!r}", where=name, fix="anyshape doctor path/to/script.py")
    if program.kind == "module" and not _is_installed(name):
        raise DoctorError(f"there is no module {name!r}", where=f"-m {name}", fix="anyshape doctor -m package.module")


def _is_installed(module: str) -> bool:
    """Whether the module, or the package that it is in, can be found from here; nothing is imported for it."""
    package = module.partition(".")[0]
    with mock.patch.object(sys, "path", [os.getcwd(), *sys.path]):
        try:
            return package in sys.modules or importlib.util.find_spec(package) is not None
        except ValueError:
            return False


def _report(
    program: launch.Program | None, folder: pathlib.Path | None, verify: bool, write: bool, live: bool
) -> tuple[Report, list[str], int]:
    if folder is not None:
        return trace.read(folder), [], 0
    assert program is not None
    chosen = program
    outcome = chosen.run(results=verify, say=launch.say_live if live else None)
    status = outcome.status if outcome.status >= 0 else 128 - outcome.status
    if not verify or not outcome.report.findings:
        return outcome.report, [], status
    print(outcome.report.headline(), file=sys.stderr)  # if a trial is interrupted, so much is known
    report, to_write = trials.verify(
        outcome, lambda r: chosen.run(r, results=True, quiet=True), say=launch.say_trial, write=write
    )
    return report, to_write, status


def _write(texts: list[str], program: launch.Program | None) -> None:
    path, changed = writing.write(texts)
    if not changed:
        why = "it says so already" if texts else "no declaration was tried that helps"
        print(f"{path}: nothing to write; {why}", file=sys.stderr)
        return
    kind, arguments = (program.kind, " ".join(program.arguments)) if program is not None else ("script", "script.py")
    way = {"module": "anyshape run -m", "pytest": "pytest -p anyshape.auto"}.get(kind, "anyshape run")
    print(f"{path}: wrote {', '.join(changed)}; use it with: {way} {arguments}", file=sys.stderr)
