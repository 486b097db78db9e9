"""`anyshape doctor`: what the command does.

Owns the order of things: run or read, prove, write, say. Knows nothing of torch; a program that is run has a process
of its own.
"""

from __future__ import annotations

import pathlib
import sys

from anyshape import local_files
from anyshape.doctor import launch, trace, writing
from anyshape.doctor.report import Report
from anyshape.errors import DoctorError


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
    """Examine a program or a trace; the exit status is that of the program."""
    for file in (json_file, html_file):
        local_files.check_writable(file)  # before the program runs for an hour
    report, status = _report(program, trace_folder, verify, live)
    report.print()
    for file, put in ((json_file, report.write_json), (html_file, report.write_html)):
        if file is not None:
            with local_files.writing(file):
                put(file)
    if write:
        path, changed = writing.write(report.findings)
        text = f"{path}: wrote {', '.join(changed)}" if changed else f"{path}: nothing to write"
        print(text, file=sys.stderr)
    return status


def _report(
    program: launch.Program | None, folder: pathlib.Path | None, verify: bool, live: bool
) -> tuple[Report, int]:
    if folder is not None:
        if verify:
            raise DoctorError(
                "a trace cannot be verified: the program is not there to be run again",
                where=f"--from {folder}",
                fix="anyshape doctor --verify script.py",
            )
        return trace.read(folder), 0
    if program is None:
        raise DoctorError("there is no program to examine", fix="anyshape doctor script.py")
    _check(program)
    outcome = program.run(results=verify, say=launch.say_live if live else None)
    if not verify:
        return outcome.report, _status(outcome)
    return launch.verify(outcome, lambda r: program.run(r, results=True, quiet=True)), _status(outcome)


def _check(program: launch.Program) -> None:
    name = program.arguments[0]
    if program.kind == "script" and not pathlib.Path(name).is_file():
        raise DoctorError(f"there is no file {name!r}", where=name, fix="anyshape doctor path/to/script.py")


def _status(outcome: launch.Outcome) -> int:
    return outcome.status if outcome.status >= 0 else 128 - outcome.status
