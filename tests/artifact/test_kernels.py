"""Machine code of a file, mapped by any number of threads: from names of their own, whole, and in spite of the disk."""

from __future__ import annotations

import os
import pathlib
import shutil
import stat
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from anyshape._torch.bundle import aot_results, plain_code

CODE = bytes(range(256)) * 4096


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Iterator[None]:
    monkeypatch.setattr(plain_code, "_mapped", {})
    monkeypatch.setattr(plain_code, "_directories", {})
    monkeypatch.setattr(plain_code.tempfile, "tempdir", str(tmp_path))
    yield


def reading(monkeypatch: pytest.MonkeyPatch, barrier: threading.Barrier | None = None) -> list[str]:
    """In the place of mapping: the file is whole before and after all others are at it too."""
    seen: list[str] = []

    def imported(key: str, path: str) -> Any:
        seen.append(path)
        for _ in range(2):
            assert pathlib.Path(path).read_bytes() == CODE
            if barrier is not None:
                barrier.wait(20)
        return object()

    monkeypatch.setattr(plain_code, "_imported", imported)
    return seen


def test_each_thread_has_a_file_of_its_own_and_one_kernel_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = reading(monkeypatch, threading.Barrier(8))
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(plain_code.load_kernel("k", CODE))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(set(seen)) == 8 and len(set(map(id, found))) == 1
    assert not any(map(os.path.exists, seen))
    assert plain_code.load_kernel("k", CODE) is found[0] and len(seen) == 8


def test_kernels_are_told_apart_by_their_code_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_code, "_imported", lambda key, path: pathlib.Path(path).read_bytes())
    assert plain_code.load_kernel("k", b"one") == b"one" and plain_code.load_kernel("k", b"two") == b"two"
    assert plain_code.load_kernel("l", b"one") == b"one"


def test_nobody_else_may_look_into_the_folder() -> None:
    made = plain_code.directory()
    assert stat.S_IMODE(os.stat(made).st_mode) == 0o700 and plain_code.directory() == made
    shutil.rmtree(made)  # as what sweeps temporary files does
    other = plain_code.directory()
    assert other != made and os.path.isdir(other)


def _no_room(*_: Any, **__: Any) -> Any:
    raise OSError(28, "No space left on device")


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="memory without a name is Linux's")
@pytest.mark.parametrize("trouble", ["mkdtemp", "mkstemp", "noexec"])
def test_without_a_disk_kernels_are_mapped_from_memory(monkeypatch: pytest.MonkeyPatch, trouble: str) -> None:
    def imported(key: str, path: str) -> Any:
        if trouble == "noexec" and not path.startswith("/proc/"):
            raise ImportError("failed to map segment from shared object")
        assert pathlib.Path(path).read_bytes() == CODE
        return path

    monkeypatch.setattr(plain_code, "_imported", imported)
    if trouble != "noexec":
        monkeypatch.setattr(plain_code.tempfile, trouble, _no_room)
    paths = [plain_code.load_kernel(key, CODE) for key in ("k", "l")]
    assert len(set(paths)) == 2 and all(p.startswith("/proc/self/fd/") for p in paths)
    assert all(os.path.exists(p) for p in paths)  # open for ever: no other file gets the name of one that is mapped


def test_variables_that_others_set_meanwhile_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANYSHAPE_TEST_A", raising=False)
    monkeypatch.setenv("ANYSHAPE_TEST_B", "before")
    with aot_results._environment({"ANYSHAPE_TEST_A": "1", "ANYSHAPE_TEST_B": "2"}):
        assert (os.environ["ANYSHAPE_TEST_A"], os.environ["ANYSHAPE_TEST_B"]) == ("1", "2")
        monkeypatch.setenv("ANYSHAPE_TEST_C", "of another thread")
    assert "ANYSHAPE_TEST_A" not in os.environ and os.environ["ANYSHAPE_TEST_B"] == "before"
    assert os.environ["ANYSHAPE_TEST_C"] == "of another thread"
