"""Reading files that others may have made: bounded, never blocking, owners checked by descriptor.

Owns reading them: opened once, never waited for, regular ones only and up to a size. And whether nobody but this user
can have put a file where it is: judged by the open descriptors on the way to it, never by a name, which may mean
another file a moment later. Knows nothing of what is in a file.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import sys
from collections.abc import Callable, Iterator

from anyshape.errors import Error, FileError

_READ = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | sum(
    getattr(os, name, 0) for name in ("O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC")
)
_JUDGES = os.open in os.supports_dir_fd and hasattr(os, "getuid")  # else nothing is known of whose a file is


BEGINNING = 64  # bytes by which a file is told to be of a kind


class UnreadableError(OSError):
    """Not a file that is read: no regular one, or one that changes meanwhile."""


class TooLargeError(UnreadableError):
    """Larger than may be."""


def read(path: str, *, most: int, check: Callable[[bytes], None] | None = None) -> bytes:
    """The bytes of a regular file. `check` is asked about its beginning before there is memory for the rest."""
    try:
        _check(os.stat(path), path, most)  # a device may act when it is opened
        handle = os.open(path, _READ)
    except ValueError as error:  # a NUL, or what no file name can be
        raise UnreadableError(f"no name of a file: {error}") from None
    return _drain(handle, path, most, check)


def read_own(path: str, *, most: int) -> tuple[bytes, bool]:
    """The bytes of a regular file, and whether it belongs to this user and no stranger may write to it."""
    _check(os.stat(path), path, most)
    handle = os.open(path, _READ)
    status = os.fstat(handle)
    return _drain(handle, path, most), is_own(status)


def read_private(path: str, *, most: int) -> bytes:
    """The bytes of a regular file, no link, that belongs to this user and that nobody else may write to.

    A link may lead to a file of this user's that a stranger made, such as a download; so may a second name of one.
    """
    _check(os.lstat(path), path, most)
    handle = os.open(path, _READ | getattr(os, "O_NOFOLLOW", 0))
    status = os.fstat(handle)
    data = _drain(handle, path, most)
    if hasattr(os, "getuid") and (status.st_uid != os.getuid() or not _is_closed(status, shared=False)):
        raise UnreadableError("it is another user's, or others may write to it")
    if hasattr(os, "getuid") and status.st_nlink > 1:
        raise UnreadableError("it has another name, and may be a file that was meant for something else")
    return data


def is_own(status: os.stat_result) -> bool:
    """Whether a file or folder belongs to this user, and no stranger may write to it."""
    return not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not status.st_mode & stat.S_IWOTH)


def read_closed(path: str, folder: str, *, most: int) -> bytes | None:
    """The bytes of a file in a folder if nobody else may write to any step of the way there; None where that is not so.

    Every step from the root down is opened beside the one before it, without following links, and judged when it is
    open: whatever happens to names meanwhile, what is read is what was judged.
    """
    if not _JUDGES:
        return None
    try:
        top, real = os.path.realpath(folder), os.path.realpath(path)
        if real == top or os.path.commonpath([top, real]) != top:
            return None
        with _closed_way(real, depth=len(_steps(top))) as handle:
            return None if handle is None else _drain(handle, path, most)
    except (OSError, ValueError):  # a link where there was none, a name that is gone
        return None


@contextlib.contextmanager
def _closed_way(real: str, *, depth: int) -> Iterator[int | None]:
    """The file at the end of a path without links, open; None if a step of the way is open to others.

    Up to `depth`, folders may be such as /tmp, where nobody can move or remove what is another's.
    """
    *folders, name = _steps(real)
    at = os.open(os.sep, _FOLDER)
    try:
        for i, step in enumerate([*folders, ""]):
            if not _is_closed(os.fstat(at), shared=i < depth):
                yield None
                return
            if step:
                inner = os.open(step, _FOLDER, dir_fd=at)
                os.close(at)
                at = inner
        handle = os.open(name, _READ | os.O_NOFOLLOW, dir_fd=at)
    finally:
        os.close(at)
    if _is_closed(os.fstat(handle), shared=False):
        yield handle
    else:
        os.close(handle)
        yield None


def _steps(path: str) -> list[str]:
    return [step for step in path.split(os.sep) if step]


def _is_closed(status: os.stat_result, *, shared: bool) -> bool:
    if status.st_uid not in (os.getuid(), 0):
        return False
    writable = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return not writable or (shared and bool(status.st_mode & stat.S_ISVTX))


def check_writable(path: str | os.PathLike[str] | None) -> None:
    """Refuse a file that could not be written when there is something to write."""
    if path is None:
        return
    try:
        folder = os.path.dirname(os.path.abspath(path))
    except OSError as error:
        raise _not_written(path, f"the working directory is gone: {error.strerror}") from error
    why = "it is a folder" if os.path.isdir(path) else "its folder is not there" if not os.path.isdir(folder) else ""
    if not why and not os.access(path if os.path.exists(path) else folder, os.W_OK):
        why = "it may not be written"
    if why:
        raise _not_written(path, why)


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Where a file of the command line is written: that this fails is said in a line."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise _not_written(path, str(error)) from error


@contextlib.contextmanager
def showing(what: str) -> Iterator[None]:
    """While a file of others is shown: any of its text can be printed, and trouble with that is said in a line."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except MemoryError:
        fix = "do not load it, or look at it where there is more memory"
        raise FileError("there is not the memory to read the file", where=what, fix=fix) from None
    except OSError as error:
        if isinstance(error, Error):
            raise
        with contextlib.suppress(OSError, ValueError):  # what is left in a buffer would be an error again at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(1)  # whoever reads has seen enough
        fix = "send it to a file on a disk that has room: ... > report.txt"
        raise FileError("what is to be shown cannot be written", where="stdout", value=str(error), fix=fix) from error


def _not_written(path: str | os.PathLike[str], why: str) -> FileError:
    fix = "name a file in a folder that is there and may be written to"
    return FileError("the file cannot be written", where=os.fspath(path), value=why, fix=fix)


def _check(status: os.stat_result, path: str, most: int) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(path)
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableError("it is no regular file")
    if status.st_size > most:
        raise TooLargeError(f"it has {status.st_size} bytes, and {most} are the most")


def _drain(handle: int, path: str, most: int, check: Callable[[bytes], None] | None = None) -> bytes:
    with open(handle, "rb") as file:
        status = os.fstat(file.fileno())
        _check(status, path, most)
        if check is not None:
            check(file.read(BEGINNING))
            file.seek(0)
        data = file.read(status.st_size + 1)
    if len(data) != status.st_size:
        raise UnreadableError("it changed while it was read")
    return data
