"""Reading what `TORCH_TRACE` wrote, on a machine without torch.

Owns the form of torch's structured log: a line with a time and a JSON object, lines with a tab that belong to it, and
a table of strings. What cannot be read is named and passed over; what can be read becomes the same events that a live
run gives.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from anyshape.doctor import guard_text
from anyshape.doctor.events import Compilation, Event, GraphBreak, Reason, Run
from anyshape.doctor.report import Report
from anyshape.errors import DoctorError

_LINE = re.compile(
    r"^(?:\[rank(?P<rank>\d+)\]:)?[VIWEDC]\d{4} [\d:.]+ +(?P<pid>\d+) (?P<at>[^\]\s]+)\] (?P<json>\{.*\})\s*$"
)
_START = re.compile(r"^(?:\[rank\d+\]:)?[VIWEDC]\d{4} ")
_BREAK = re.compile(
    r"Graph break in user code at (?P<file>.+?):(?P<line>\d+)\s*\n(?:Graph Break Reason: )?(?P<reason>.*)", re.S
)
_ENTRY = re.compile(r"^(?P<entry>\d+/\d+(?:_\d+)?): (?P<rest>.*)$", re.DOTALL)
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in [^\n]*(?:\n\s+(?P<code>[^\n]+))?')
_LARGEST: Final = 1 << 30
_KEPT: Final = 50  # problems that are named
# What is looked for in a text takes a time that is quadratic in its length, whatever a stranger has put there.
_MOST_TEXT: Final = 1 << 12  # characters of a guard, or of the reason for a graph break
_MOST_STACK: Final = 1 << 16
_MOST_ENTRIES: Final = 20_000  # compilations and graph breaks of a file
_MOST_ALIKE: Final = 64  # files of one name among which a short name is looked up
_MISFITS: Final = (TypeError, ValueError, KeyError, AttributeError, IndexError, RecursionError, OverflowError)


@dataclasses.dataclass(frozen=True)
class Record:
    """One entry of the log."""

    fields: Mapping[str, Any]
    payload: str
    pid: int
    number: int

    @property
    def id(self) -> str:
        if self.fields.get("frame_id") is None:
            return ""
        return f"{self.fields['frame_id']}/{self.fields.get('frame_compile_id', 0)}"


class _File:
    """What is gathered from one file: torch writes one for each process."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.problems: list[str] = []
        self.strings: dict[int, str] = {}
        self.alike: dict[str, list[str]] = {}  # the same, by the last part of their names
        self.named: dict[str, Mapping[str, Any]] = {}  # metrics that name a frame, by compile id
        self.reasons: dict[str, list[str]] = {}
        self.starts: dict[str, list[dict[str, Any]]] = {}
        self.pins: dict[tuple[str, str, int], tuple[str, int, str]] = {}
        self.metrics: list[tuple[Record, Mapping[str, Any]]] = []
        self.breaks: list[GraphBreak] = []
        self.records = 0

    def problem(self, number: int, text: str) -> None:
        if len(self.problems) < _KEPT:
            self.problems.append(f"{self.path.name}:{number}: {text}")


def read(folder: str | os.PathLike[str]) -> Report:
    """The report on a folder that `TORCH_TRACE` named, or on one file of it."""
    path = pathlib.Path(folder)
    paths = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else []
    if not paths:
        what = "the folder is empty" if path.is_dir() else "there is no such folder"
        raise DoctorError(f"{what}: {path}", where=f"--from {path}", fix="TORCH_TRACE=/tmp/trace python script.py")
    files = [_read_file(p) for p in paths]
    problems = [problem for file in files for problem in file.problems]
    if not any(file.records for file in files):
        shown = "\n         ".join(problems[:3])
        raise DoctorError(
            f"nothing in here was written by TORCH_TRACE\n         {shown}",
            where=f"--from {path}",
            fix="TORCH_TRACE=/tmp/trace python script.py; anyshape doctor --from /tmp/trace",
        )
    return Report.of(list(_events(files, path)), problems)


def _read_file(path: pathlib.Path) -> _File:
    file = _File(path)
    try:
        if path.stat().st_size > _LARGEST:
            file.problem(0, f"larger than {_LARGEST >> 20} MiB, not read")
            return file
        with path.open("rb") as stream:
            for record in _records(stream, file):
                file.records += 1
                try:
                    _take(record, file)
                except _MISFITS as error:
                    file.problem(record.number, f"an entry of another form: {type(error).__name__}: {str(error)[:100]}")
    except OSError as error:
        file.problem(0, f"cannot be read: {error.strerror}")
    if not file.records and not file.problems:
        file.problem(1, "empty")
    return file


def _records(stream: Iterable[bytes], file: _File) -> Iterator[Record]:
    current: tuple[Mapping[str, Any], int, int] | None = None
    payload: list[str] = []
    for number, raw in enumerate(stream, 1):
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if line.startswith("\t"):
            if current is not None:
                payload.append(line[1:])
            continue
        if current is not None:
            yield Record(current[0], "\n".join(payload), current[1], current[2])
        current, payload = None, []
        found = _LINE.match(line)
        if found is None:
            if line.strip():
                file.problem(number, "cut off" if _START.match(line) else f"not a line of a trace: {line[:60]!r}")
            continue
        try:
            current = (json.loads(found["json"]), int(found["pid"]), number)
        except (ValueError, RecursionError) as error:
            file.problem(number, f"not JSON: {str(error)[:100]}")
    if current is not None:
        yield Record(current[0], "\n".join(payload), current[1], current[2])


def _take(record: Record, file: _File) -> None:
    fields = record.fields
    if len(file.metrics) + len(file.breaks) >= _MOST_ENTRIES:
        raise ValueError(f"after {_MOST_ENTRIES} compilations, not read")
    if "str" in fields:
        text, index = fields["str"]
        file.strings[int(index)] = str(text)
        for name in {str(text).rpartition("/")[2], str(text)[2:].rpartition("/")[2]}:
            listed = file.alike.setdefault(name, [])
            if len(listed) < _MOST_ALIKE:
                listed.append(str(text))
    elif "dynamo_start" in fields:
        file.starts[record.id] = list(fields["dynamo_start"]["stack"])
    elif "compilation_metrics" in fields:
        said = fields["compilation_metrics"]
        if not isinstance(said, Mapping) or not math.isfinite(said.get("start_time") or 0.0):
            raise ValueError("metrics that are none")
        file.metrics.append((record, said))
        if said.get("co_name"):
            file.named.setdefault(str(said.get("compile_id")), said)
    elif "symbolic_shape_specialization" in fields:
        _take_pin(record, file)
    elif "artifact" in fields:
        name = fields["artifact"].get("name")
        if name == "recompile_reasons":
            file.reasons[record.id] = _reason_texts(record.payload)
        elif name == "dynamo_graph_break_reason":
            found = _BREAK.search(record.payload[:_MOST_TEXT])
            if found is None:
                raise ValueError("a graph break without a place")
            reason = found["reason"].partition("\n\nUser code traceback:")[0]
            code = _code_at(record.payload[:_MOST_STACK], found["file"], int(found["line"]))
            file.breaks.append(
                GraphBreak(record.id, found["file"], int(found["line"]), reason.strip(), code, pid=record.pid)
            )


def _take_pin(record: Record, file: _File) -> None:
    """torch says which line made a number of a size."""
    said = record.fields["symbolic_shape_specialization"]
    frames = [f for f in said.get("user_stack") or () if isinstance(f, dict)]
    users = [f for f in frames if "/torch/" not in _file(f, file)]
    if not users:
        return
    place = (_file(users[-1], file), int(users[-1].get("line", 0)), str(users[-1].get("loc") or ""))
    for source in said.get("sources") or ():
        for name, dim in guard_text.size_sources(str(source)[:_MOST_TEXT]):
            file.pins.setdefault((record.id, name, dim), place)


def _reason_texts(payload: str) -> list[str]:
    try:
        value = json.loads(payload)
    except ValueError:
        return [payload] if payload.strip() else []
    return [str(v) for v in value] if isinstance(value, list) else [str(value)]


def _events(files: Iterable[_File], path: pathlib.Path) -> Iterator[Event]:
    listed = list(files)
    metrics = [m for file in listed for _, m in file.metrics]
    began = min((float(m["start_time"]) for m in metrics if m.get("start_time")), default=0.0)
    version = next((str(m["torch_version"]) for m in metrics if m.get("torch_version")), "")
    python = next((str(m["python_version"]).split()[0] for m in metrics if m.get("python_version")), "")
    yield Run(command=("trace", str(path)), torch=version, python=python, time=began)
    for file in listed:
        for record, said in file.metrics:
            if said.get("is_forward") is False:
                continue
            try:
                yield _compilation(record, said, file, began)
            except _MISFITS as error:
                file.problem(record.number, f"a compilation of another form: {str(error)[:100]}")
        yield from file.breaks


def _compilation(record: Record, said: Mapping[str, Any], file: _File, began: float) -> Compilation:
    identity = str(said.get("compile_id") or record.id)
    stack = file.starts.get(identity) or file.starts.get(record.id) or []
    frame: Mapping[str, Any] = stack[-1] if stack else {}
    outcome, error = "compiled", ""
    if said.get("fail_type"):
        outcome, error = "failed", f"{said['fail_type']}: {said.get('fail_reason') or ''}"
        if "recompile limit" in error or "RecompileLimit" in error:
            outcome = "limit"
    elif said.get("recompile_reason") and not stack:
        outcome, error = "limit", "the recompile limit was reached"  # torch stops before it says that it starts
    elif said.get("has_guarded_code") is False:
        outcome = "skipped"
    caller: Mapping[str, Any] = next((f for f in reversed(stack[:-1]) if "/torch/" not in _file(f, file)), {})
    name = str(said.get("co_name") or frame.get("name") or "")
    place = (
        str(said.get("co_filename") or _file(frame, file)),
        int(said.get("co_firstlineno") or frame.get("line") or 0),
    )
    reasons = _reasons(file.reasons.get(identity) or [said.get("recompile_reason") or ""], file, place[0])
    if not name and reasons:
        # A frame that hit the limit has no name of its own here; the program that refused it was of the same frame.
        name, place = _named_by(reasons[0].entry, file) or (name, place)
    return Compilation(
        id=identity, name=name, file=place[0], line=place[1], qualname=name,
        start=max(0.0, float(said.get("start_time") or began) - began),
        seconds=float(said.get("entire_frame_compile_time_s") or said.get("duration_us", 0) / 1e6 or 0.0),
        outcome=outcome, error=error, reasons=tuple(reasons), guards=int(said.get("guard_count") or 0),
        call_file=_file(caller, file), call_line=int(caller.get("line") or 0), pid=record.pid,
    )  # fmt: skip


def _named_by(entry: str, file: _File) -> tuple[str, tuple[str, int]] | None:
    said = file.named.get(entry)
    if said is None:
        return None
    return str(said["co_name"]), (str(said.get("co_filename") or ""), int(said.get("co_firstlineno") or 0))


def _reasons(texts: Iterable[str], file: _File, frame_file: str) -> list[Reason]:
    found: list[Reason] = []
    for text in texts:
        match = _ENTRY.match(text[:_MOST_STACK].strip())
        if match is None:
            continue
        head, _, stack = match["rest"].partition("\nUser stack trace:\n")
        frames = [f for f in _FRAME.finditer(stack) if "/torch/" not in f["file"]]
        reason = guard_text.reason(match["entry"], head[:_MOST_TEXT])
        reason = dataclasses.replace(reason, file=_full(reason.file, file, frame_file))
        if frames:
            last = frames[-1]
            reason = dataclasses.replace(
                reason, file=last["file"], line=int(last["line"]), code=last["code"] or reason.code
            )
        pin = file.pins.get((reason.entry, reason.source, -1 if reason.dim is None else reason.dim))
        if pin is not None and reason.kind == "size":
            guard = f"{reason.source}.size()[{reason.dim}] == {reason.expected}"
            reason = dataclasses.replace(reason, kind="shape", guard=guard, file=pin[0], line=pin[1], code=pin[2])
        found.append(reason)
    return found


def _full(short: str, file: _File, frame_file: str) -> str:
    """torch cuts folders off the start of a file's name in its reasons; the table of strings has it whole."""
    if not short or os.path.isabs(short):
        return short
    known = [frame_file, *file.alike.get(short.rpartition("/")[2], ())]
    # Whole folders, or all but the first letter: where a file shares only `/` with torch's, that goes with it.
    return next((k for k in known if k.endswith(f"/{short}") or (k.startswith("/") and k[2:] == short)), short)


def _file(frame: Mapping[str, Any], file: _File) -> str:
    name = frame.get("filename", "")
    return file.strings.get(name, "") if isinstance(name, int) else str(name)


def _code_at(text: str, name: str, line: int) -> str:
    found = [f for f in _FRAME.finditer(text) if f["file"] == name and int(f["line"]) == line]
    return (found[-1]["code"] or "").strip() if found else ""
