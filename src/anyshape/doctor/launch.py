"""Running a program under observation, once or again with remedies.

Owns the child process and what is said while it runs. A remedy is made as it is offered: variables are set in the
child's environment, edited text is run in the place of the file's, tables are written to a file that `anyshape run`
reads. Knows nothing of torch: the child does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from anyshape.declaration import spec_file
from anyshape.doctor import event_log, writing
from anyshape.doctor.events import Compilation, Event, Result
from anyshape.doctor.findings import Remedy
from anyshape.doctor.report import Report, change, place
from anyshape.doctor.trials import Outcome

VARIABLE: Final = "ANYSHAPE_DOCTOR"
_CHILD: Final = "from anyshape.observing import child; child()"
_CACHES: Final = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


@dataclasses.dataclass(frozen=True)
class Program:
    """What is to be run: a script, a module or tests, with its arguments."""

    kind: str  # script | module | pytest
    arguments: tuple[str, ...]

    def run(self, remedies: Sequence[Remedy] = (), *, results: bool = False, say: Callable[[Event], None] | None = None,
            quiet: bool = False) -> Outcome:  # fmt: skip
        """Run it in a process of its own, and read what was seen, however it ended."""
        with _folder() as folder:
            path = folder / "events.jsonl"
            path.touch()
            declarations = [r.toml for r in remedies if r.toml]
            order = {
                "kind": self.kind,
                "arguments": list(self.arguments),
                "events": str(path),
                "results": results,
                "edits": [dataclasses.asdict(e) for r in remedies for e in r.edits],
                "declared": bool(declarations),
            }
            environment = os.environ | variables(remedies) | {VARIABLE: json.dumps(order)}
            if declarations:
                environment[spec_file.VARIABLE] = str(declared(declarations, folder))
            if results:
                # Seconds are compared: what one run left on disk must not help the next.
                environment |= {name: str(folder / name.lower()) for name in _CACHES}
            streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} if quiet else {}
            process = subprocess.Popen([sys.executable, "-c", _CHILD], env=environment, **streams)
            with _patient(process):
                for event in event_log.follow(path, lambda: process.poll() is None, lambda: time.sleep(0.05)):
                    if say is not None:
                        say(event)
            status = process.wait()
            found, problems = event_log.read(path)
        if status < 0:
            problems.append(f"the program was ended by signal {-status}; what it did until then is here")
        report = Report.of(found, problems)
        return Outcome(report, tuple(e for e in found if isinstance(e, Result)), status)


def variables(remedies: Sequence[Remedy]) -> dict[str, str]:
    """What remedies want in the environment; several about one variable are joined, as torch reads them."""
    found: dict[str, str] = {}
    for name, value in (pair for r in remedies for pair in r.settings):
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


def declared(texts: Sequence[str], folder: pathlib.Path) -> pathlib.Path:
    """A copy of the user's own file with these tables added, as `--write` would leave it."""
    path = folder / spec_file.FILE_NAME
    there = spec_file.find()
    if there is not None:
        path.write_bytes(there.read_bytes())
    writing.write(texts, path)
    return path


def say_trial(text: str) -> None:
    """A line about a trial, while it runs."""
    _say(f"doctor: {text}", "dim")


def say_live(event: Event) -> None:
    """One line for each compilation while the program runs."""
    if not isinstance(event, Compilation):
        return
    changed = "; ".join(dict.fromkeys(change(r) for r in event.reasons[:3]))
    text = f"doctor: {event.outcome} {event.function} [{event.id}] {event.seconds:.2f} s"
    text += f" because {changed}" if changed else f" at {place(event.file, event.line)}"
    _say(text, "red" if event.outcome in ("failed", "limit") else "yellow" if changed else "dim")


def _say(text: str, style: str) -> None:
    try:
        from rich.console import Console
    except ImportError:
        print(text, file=sys.stderr)
    else:
        Console(stderr=True, highlight=False).print(text, style=style, markup=False, soft_wrap=True)


@contextlib.contextmanager
def _folder() -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory(prefix="anyshape-doctor-") as folder:
        yield pathlib.Path(folder)


@contextlib.contextmanager
def _patient(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """An interrupt is the program's to handle; the report is still to be written."""
    try:
        yield
    except KeyboardInterrupt:
        process.wait()
