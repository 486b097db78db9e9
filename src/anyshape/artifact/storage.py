"""Reading and atomic saving of artifacts: local files and URLs of fsspec.

Owns saving so that a reader finds the old file or the new one, never a part of either, and reading with a limit: no
file of any kind makes a reader wait for ever, or take more than an artifact may have.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable
from typing import Any

from anyshape.artifact.container import MOST_BYTES
from anyshape.errors import ArtifactError, Error, missing
from anyshape.foundation import local_files

_PIECE = 16 << 20
_STALE = 24 * 3600.0  # seconds after which what a killed writer left behind is swept away


def write(url: str | os.PathLike[str], data: bytes) -> None:
    """Put `data` at `url`, all of it or nothing."""
    text = os.fspath(url)
    path = local_path(text)
    if path is not None:
        _write_file(path, data)
        return
    filesystem, name = _filesystem(text)
    beside = f"{name}.{secrets.token_hex(8)}.tmp"
    try:
        filesystem.pipe_file(beside, data)
        filesystem.cp_file(beside, name)
    finally:
        with contextlib.suppress(Exception):
            filesystem.rm_file(beside)


def read(url: str | os.PathLike[str], *, check: Callable[[bytes, str], None] | None = None) -> bytes:
    """The bytes at `url`. `check` is asked about their beginning first."""
    text = os.fsdecode(url)
    path = local_path(text)
    try:
        looks = None if check is None else lambda data: check(data, text)
        return local_files.read(path, most=MOST_BYTES, check=looks) if path is not None else _fetch(text, looks)
    except (Error, MemoryError):
        raise
    except local_files.TooLargeError as error:
        raise _too_large(str(error), text) from error
    except Exception as error:  # of any file system that fsspec knows
        said = f": {error}" if str(error) and not isinstance(error, FileNotFoundError) else ""
        raise ArtifactError(
            "there is no artifact that can be read",
            where=text,
            value=f"{type(error).__name__}{said}"[:200],
            fix='anyshape.precompile(fn, args).save("model.any")',
            code="AS050",
        ) from error


def exists(url: str) -> bool:
    path = local_path(url)
    if path is not None:
        return os.path.exists(path)
    filesystem, name = _filesystem(url)
    return bool(filesystem.exists(name))


def local_path(url: str) -> str | None:
    """The path of a local file; None for a URL of anything else."""
    if url.startswith("file://"):
        return url[len("file://") :]
    return None if "://" in url else url


def _write_file(path: str, data: bytes) -> None:
    """Written beside the target, made durable, and put in its place in one step."""
    directory, name = os.path.split(os.path.abspath(path))
    os.makedirs(directory, exist_ok=True)
    _sweep(directory, name)
    beside = os.path.join(directory, f".{name}.{secrets.token_hex(8)}.tmp")
    try:
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    _make_durable(directory)


def _make_durable(directory: str) -> None:
    with contextlib.suppress(OSError):  # not every file system has directories that can be synced
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _sweep(directory: str, name: str) -> None:
    """Remove what writers that were killed left behind."""
    with os.scandir(directory) as entries:
        left = [e for e in entries if e.name.startswith(f".{name}.") and e.name.endswith(".tmp")]
    for entry in left:
        with contextlib.suppress(OSError):
            if time.time() - entry.stat(follow_symlinks=False).st_mtime > _STALE:
                os.unlink(entry.path)


def _fetch(url: str, check: Callable[[bytes], None] | None) -> bytes:
    """The bytes at a URL; what is said of their number is not believed."""
    filesystem, name = _filesystem(url)
    _check_size(int(filesystem.info(name).get("size") or 0), url)
    pieces: list[bytes] = []
    size = 0
    with filesystem.open(name, "rb") as file:
        while piece := file.read(_PIECE):
            if check is not None and not pieces:
                check(piece[: local_files.BEGINNING])
            pieces.append(piece)
            size += len(piece)
            _check_size(size, url)
    return b"".join(pieces)


def _check_size(size: int, where: str) -> None:
    if size > MOST_BYTES:
        raise _too_large(f"{size} bytes", where)


def _too_large(value: str, where: str) -> ArtifactError:
    fix = "do not load it: no anyshape writes such a file"
    return ArtifactError("the file is larger than any artifact", where=where, value=value, fix=fix, code="AS054")


def _filesystem(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as error:
        raise missing("fsspec", needed_for="artifacts at URLs", extra="urls") from error
    return fsspec.core.url_to_fs(url)
