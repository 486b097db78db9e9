"""The file that events are appended to as they happen.

Owns writing a line so that a crash, a fork or a hard exit loses nothing before it, and reading what is there, damaged
or not. Knows nothing of torch.
"""

from __future__ import annotations

import collections
import json
import os
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from anyshape.doctor import events
from anyshape.doctor.events import Event


class Sink(Protocol):
    """Where an observer puts events."""

    def __call__(self, event: Event) -> None: ...


class Writer:
    """Appends events to a file. A line is one write to a descriptor opened for appending: processes can share it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o644)

    def __call__(self, event: Event) -> None:
        line = json.dumps(events.to_json(event), default=repr, separators=(",", ":"))
        os.write(self._descriptor, line.encode("utf-8", "backslashreplace") + b"\n")

    def close(self) -> None:
        os.close(self._descriptor)


class Memory:
    """Keeps the newest events, at most `limit`, and says how many were let go."""

    def __init__(self, limit: int = 10_000) -> None:
        self._events: collections.deque[Event] = collections.deque(maxlen=limit)
        self._lock = threading.Lock()
        self.dropped = 0

    def __call__(self, event: Event) -> None:
        with self._lock:
            self.dropped += len(self._events) == self._events.maxlen
            self._events.append(event)

    @property
    def events(self) -> list[Event]:
        with self._lock:
            return list(self._events)


def read(path: str | os.PathLike[str]) -> tuple[list[Event], list[str]]:
    """The events of a file, and a line for each part of it that could not be read."""
    found: list[Event] = []
    problems: list[str] = []
    for number, line in enumerate(pathlib.Path(path).read_bytes().splitlines(), 1):
        try:
            value = json.loads(line)
            found.append(events.from_json(value))
        except (ValueError, AttributeError, TypeError) as error:
            problems.append(f"{path}:{number}: {' '.join(str(error).split())[:160]}")
    return found, problems


def follow(path: str | os.PathLike[str], running: Callable[[], bool], pause: Callable[[], None]) -> Iterator[Event]:
    """Events as they are written, until the writer is gone."""
    position, rest, last = 0, b"", False
    while True:
        last = not running()
        with open(path, "rb") as file:
            file.seek(position)
            chunk = file.read()
        position += len(chunk)
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            try:
                yield events.from_json(json.loads(line))
            except (ValueError, AttributeError, TypeError):
                continue  # counted when the whole file is read
        if last:
            return
        pause()
