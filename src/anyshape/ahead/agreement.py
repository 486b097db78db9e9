"""Agreement between processes: the board of programs, and the lease on the right to compile.

Owns the board on which programs are pinned up for all, and the lease on the right to compile: a token that one process
holds and keeps changing while it is at work. A token that has not changed for some time belongs to a process that is
gone, and whoever waits takes it over. No clock is compared with another process's. A board that cannot be used, a full
disk or a store that is gone, is one kind of trouble, whatever its cause.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from anyshape import plain_text
from anyshape.artifact import storage
from anyshape.artifact.container import MOST_BYTES
from anyshape.foundation import local_files

FREE = "free"
_LONGEST_TOKEN = 1 << 16
_PIECE = 1 << 20  # torch's stores do not take values of any size


class Unreachable(Exception):
    """The board cannot be used. No fault of the call that needed it."""


class Board(Protocol):
    """What all processes see."""

    def names(self) -> list[str]:
        """What is pinned up, oldest first."""

    def fetch(self, name: str) -> bytes: ...

    def publish(self, data: bytes) -> None: ...

    def peek(self) -> str:
        """The token of the lease."""

    def swap(self, expected: str, token: str) -> bool:
        """Put a token in the place of the one that is expected there, in one step; False if it was another one."""


class Watched:
    """A board whose troubles are one kind of error; it is put up when it is first needed."""

    def __init__(self, put_up: Callable[[], Board]) -> None:
        self._put_up = put_up
        self._board: Board | None = None

    def _do(self, act: Callable[[Board], Any]) -> Any:
        try:
            if self._board is None:
                self._board = self._put_up()
            return act(self._board)
        except (Unreachable, MemoryError):
            raise
        except Exception as error:  # of a disk, a store or any file system that fsspec knows
            said = (str(error).splitlines() or [""])[0]
            raise Unreachable(plain_text.line(f"{type(error).__name__}: {said}", most=200)) from error

    def names(self) -> list[str]:
        return self._do(lambda board: board.names())  # type: ignore[no-any-return]

    def fetch(self, name: str) -> bytes:
        return self._do(lambda board: board.fetch(name))  # type: ignore[no-any-return]

    def publish(self, data: bytes) -> None:
        self._do(lambda board: board.publish(data))

    def peek(self) -> str:
        return self._do(lambda board: board.peek())  # type: ignore[no-any-return]

    def swap(self, expected: str, token: str) -> bool:
        return self._do(lambda board: board.swap(expected, token))  # type: ignore[no-any-return]


class StoreBoard:
    """On the store of a process group."""

    def __init__(self, store: Any) -> None:
        self._store = store
        store.compare_set("lease", "", FREE)
        store.compare_set("index", "", "-")

    def names(self) -> list[str]:
        return bytes(self._store.get("index")).decode().split(" ")[1:]

    def fetch(self, name: str) -> bytes:
        pieces = int(self._store.get(f"program/{name}"))
        return b"".join(bytes(self._store.get(f"program/{name}/{i}")) for i in range(pieces))

    def publish(self, data: bytes) -> None:
        name = uuid.uuid4().hex
        pieces = [data[i : i + _PIECE] for i in range(0, len(data), _PIECE)]
        for i, piece in enumerate(pieces):
            self._store.set(f"program/{name}/{i}", piece)
        self._store.set(f"program/{name}", str(len(pieces)))
        while True:  # in the index when all of it is there, so that nobody waits for what never comes
            index = bytes(self._store.get("index")).decode()
            listed = f"{index} {name}"
            if bytes(self._store.compare_set("index", index, listed)).decode() == listed:
                return

    def peek(self) -> str:
        return bytes(self._store.get("lease")).decode()

    def swap(self, expected: str, token: str) -> bool:
        return bytes(self._store.compare_set("lease", expected, token)).decode() == token


class DirectoryBoard:
    """In a directory that all processes see, of one host or of many."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        os.makedirs(directory, exist_ok=True)

    def names(self) -> list[str]:
        with os.scandir(self._directory) as entries:
            found = [(e.stat(follow_symlinks=False).st_mtime_ns, e.name) for e in entries if e.name.endswith(".any")]
        return [name for _, name in sorted(found)]

    def fetch(self, name: str) -> bytes:
        """The bytes of a file, if it is this user's alone: its code is to run."""
        return local_files.read_private(os.path.join(self._directory, name), most=MOST_BYTES)

    def publish(self, data: bytes) -> None:
        storage.write(os.path.join(self._directory, f"{hashlib.sha256(data).hexdigest()[:32]}.any"), data)

    def peek(self) -> str:
        try:
            data = local_files.read(os.path.join(self._directory, "lease"), most=_LONGEST_TOKEN)
            return data.decode("ascii", "backslashreplace") or FREE
        except FileNotFoundError:
            return FREE

    def swap(self, expected: str, token: str) -> bool:
        with self._locked():
            if self.peek() != expected:
                return False
            storage.write(os.path.join(self._directory, "lease"), token.encode())
            return True

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """For a moment; the system lets go of it when the process ends, however that is."""
        import fcntl

        # No link is followed: what it leads to would be somebody's file.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(os.path.join(self._directory, "lock"), flags, 0o644), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def at(place: str) -> Board:
    """The board at a path or URL; a URL of this machine's own files is their path."""
    path = storage.local_path(place)
    if path is not None:
        return DirectoryBoard(path)
    found = UrlBoard(place)
    return DirectoryBoard(found.root) if found.is_local else found


class UrlBoard:
    """At a URL of fsspec's. There is no lock there: two that start in the same moment may both compile."""

    def __init__(self, url: str) -> None:
        import fsspec

        self._url = url.rstrip("/")
        self._files, self.root = fsspec.core.url_to_fs(self._url)
        self._files.makedirs(self.root, exist_ok=True)

    @property
    def is_local(self) -> bool:
        return "file" in (names if isinstance(names := self._files.protocol, (tuple, list)) else [names])

    def names(self) -> list[str]:
        self._files.invalidate_cache()
        found = [str(p).rpartition("/")[2] for p in self._files.ls(self.root, detail=False)]
        return sorted(n for n in found if n.endswith(".any"))

    def fetch(self, name: str) -> bytes:
        return storage.read(f"{self._url}/{name}")

    def publish(self, data: bytes) -> None:
        storage.write(f"{self._url}/{hashlib.sha256(data).hexdigest()[:32]}.any", data)

    def peek(self) -> str:
        path = f"{self.root}/lease"
        return bytes(self._files.cat_file(path)).decode() if self._files.exists(path) else FREE

    def swap(self, expected: str, token: str) -> bool:
        if self.peek() != expected:
            return False
        storage.write(f"{self._url}/lease", token.encode())
        return self.peek() == token


class Lease:
    """The right to compile, held by this process inside `hold`."""

    def __init__(self, board: Board, *, patience: float) -> None:
        self._board, self.patience = board, patience
        self._me = uuid.uuid4().hex
        self._beats = 0
        self._seen = ""
        self._since = 0.0

    def take(self) -> bool:
        """Get hold of it if it is free or its holder has been silent for too long."""
        token = self._board.peek()
        now = time.monotonic()
        if token != self._seen:
            self._seen, self._since = token, now
        if token != FREE and now - self._since < self.patience:
            return False
        return self._board.swap(token, self._token())

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """While inside, others see that the holder is alive; afterwards it is free."""
        over = threading.Event()
        thread = threading.Thread(target=self._beat, args=(over.wait,), name="anyshape-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            with contextlib.suppress(Unreachable):  # then it is taken over
                self._board.swap(self._current(), FREE)

    def _beat(self, wait: Callable[[float], bool]) -> None:
        while not wait(self.patience / 5):
            current = self._current()
            try:
                if not self._board.swap(current, self._token()):
                    self._beats -= 1
                    return  # taken over: what is being made is of use all the same
            except Exception:  # a store that does not answer now may do so the next time
                self._beats -= 1

    def _token(self) -> str:
        self._beats += 1
        return self._current()

    def _current(self) -> str:
        return f"{self._me}:{self._beats}"
