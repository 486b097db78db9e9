"""Trouble with what ranks agree through: every rank goes on, right and within its bound, and says why once."""

from __future__ import annotations

import os
import pathlib
import shutil
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import served_callables as callables
import torch
import torch.distributed as dist

from anyshape import errors
from anyshape.ahead import agreement, one_rank
from anyshape.ahead.agreement import DirectoryBoard, StoreBoard, Unreachable, UrlBoard, Watched
from anyshape.ahead.making import Workshop
from anyshape.ahead.stored import Stored
from anyshape.artifact import container, storage

X, INDEX = torch.randn(5), torch.tensor([0, 4])


@pytest.fixture(scope="module")
def stored() -> Stored:
    """A program, compiled once for all that follows."""
    return Workshop(callables.picks).make((X, INDEX), {})[0]


@pytest.fixture
def made(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Compiling gives that program; how often somebody compiled."""
    times: list[int] = []

    class Quick:
        def __init__(self, live: Any, **options: Any) -> None:
            pass

        def make(self, args: Any, kwargs: Any) -> list[Stored]:
            times.append(1)
            return [stored]

    monkeypatch.setattr(one_rank, "Workshop", Quick)
    yield times


class Rank:
    """One rank, which runs eagerly what it would compile for itself."""

    def __init__(self, place: str | os.PathLike[str], patience: float = 0.5) -> None:
        self.reasons: list[str] = []
        self.alone = 0
        engine: Any = types.SimpleNamespace(count_eager=self.reasons.append, loaded=())
        self.shared = one_rank.OneRank(
            callables.picks,
            engine,
            entry_check=None,
            mode=None,
            options=None,
            artifacts=os.fspath(place),
            patience=patience,
        )
        self.call = self.shared.around(self._alone)

    def _alone(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        self.alone += 1
        return callables.picks(x, i)

    def works(self, *, seconds: float = 20.0) -> Rank:
        began = time.monotonic()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(2):
                torch.testing.assert_close(self.call(X, INDEX), callables.picks(X, INDEX))
        assert time.monotonic() - began < seconds
        told = [w for w in said if issubclass(w.category, errors.FallbackWarning)]
        assert len(told) == len(self.reasons) <= 1, [str(w.message) for w in said]
        return self


@pytest.fixture
def board(made: list[int], tmp_path: pathlib.Path) -> pathlib.Path:
    """Where a rank has pinned up its program."""
    assert Rank(tmp_path).works().alone == 0
    (place,) = tmp_path.iterdir()
    return place


def _program(board: pathlib.Path) -> pathlib.Path:
    return next(p for p in board.glob("*.any") if not p.name.startswith("0"))


def _put(name: str, data: Callable[[pathlib.Path], bytes]) -> Callable[[pathlib.Path], Any]:
    return lambda board: (board / name).write_bytes(data(board))


def _repacked(board: pathlib.Path, **changes: Any) -> bytes:
    contents = container.unpack(_program(board).read_bytes(), where="x")
    facts = {**contents.manifest, **changes}
    facts.pop("members")
    return container.pack(facts, {"a": b""})


def _replace(target: str, make: Callable[[pathlib.Path], Any]) -> Callable[[pathlib.Path], Any]:
    def act(board: pathlib.Path) -> None:
        path = board / target
        if path.exists():
            path.unlink()
        make(path)

    return act


# With a good program beside it, nobody has to compile.
BESIDE: dict[str, Callable[[pathlib.Path], Any]] = {
    "torn": _put("0.any", lambda b: _program(b).read_bytes()[:1000]),
    "torn in its header": _put("0.any", lambda b: _program(b).read_bytes()[:20]),
    "empty": _put("0.any", lambda b: b""),
    "a byte of it changed": _put("0.any", lambda b: _program(b).read_bytes()[:-40] + bytes(40)),
    "no artifact": _put("0.any", lambda b: b"x" * 10_000),
    "of another machine": _put("0.any", lambda b: _repacked(b, environment={})),
    "whole, and without a program": _put("0.any", lambda b: _repacked(b)),
    "whole, and of nothing": _put("0.any", lambda b: _repacked(b, programs=[])),
    "a dangling link": lambda b: (b / "0.any").symlink_to("/nowhere/at/all"),
    "a link to itself": lambda b: (b / "0.any").symlink_to("0.any"),
    "a folder": lambda b: (b / "0.any").mkdir(),
    "a FIFO": lambda b: os.mkfifo(b / "0.any"),
    "endless": lambda b: (b / "0.any").symlink_to("/dev/zero"),
    "anybody's to write to": lambda b: (shutil.copy(_program(b), b / "0.any"), (b / "0.any").chmod(0o666)),
    "left behind by a writer": lambda b: (b / ".0.any.12.tmp").write_bytes(b"x"),
    "a lease that is no text": _put("lease", lambda b: b"\xff\xfe"),
    "a lease of one that is gone": _put("lease", lambda b: b"dead:1"),
    "a lease that is a folder": _replace("lease", os.mkdir),
    "a lock that is a link": _replace("lock", lambda path: path.symlink_to(path.parent.parent / "victim")),
}


@pytest.mark.parametrize("fault", list(BESIDE))
def test_a_file_that_is_of_no_use_is_passed_by(board: pathlib.Path, made: list[int], fault: str) -> None:
    made.clear()
    BESIDE[fault](board)
    rank = Rank(board.parent).works()
    assert rank.alone == 0 and not made
    assert all("cannot be loaded" in reason for reason in rank.reasons)


def _of_another_callable(board: pathlib.Path) -> None:
    """Whole, and it would run: the program, as one that was made from another source."""
    program = _program(board)
    contents = container.unpack(program.read_bytes(), where="x")
    facts = {name: value for name, value in contents.manifest.items() if name != "members"}
    program.write_bytes(container.pack({**facts, "key": "f" * 64}, {n: bytes(m) for n, m in contents.members.items()}))


def _a_link_to_a_file_of_this_user(board: pathlib.Path) -> None:
    """As a stranger would plant one that leads to a download."""
    os.rename(_program(board), board.parent / "download")
    (board / "1.any").symlink_to(board.parent / "download")


def _a_second_name_of_a_file_of_this_user(board: pathlib.Path) -> None:
    os.link(_program(board), board.parent / "download")


FOREIGN: dict[str, Callable[[pathlib.Path], Any]] = {
    "of another callable": _of_another_callable,
    "a link to a file of this user": _a_link_to_a_file_of_this_user,
    "a second name of a file of this user": _a_second_name_of_a_file_of_this_user,
    "a group's to write to": lambda b: _program(b).chmod(0o664),
    "anybody's to write to": lambda b: _program(b).chmod(0o646),
}


@pytest.mark.parametrize("form", ["{}", "file://{}", "local://{}"])
@pytest.mark.parametrize("kind", list(FOREIGN))
def test_a_program_that_may_be_a_strangers_is_not_run(
    board: pathlib.Path, made: list[int], kind: str, form: str
) -> None:
    """A folder of this machine is one however it is named."""
    if form != "{}":
        pytest.importorskip("fsspec")
    made.clear()
    FOREIGN[kind](board)
    rank = Rank(form.format(board.parent)).works()
    assert len(made) == 1 and "cannot be loaded" in rank.reasons[0]


# Without one, somebody compiles.
INSTEAD: dict[str, Callable[[pathlib.Path], Any]] = {
    "torn": lambda b: _program(b).write_bytes(_program(b).read_bytes()[:1000]),
    "gone": lambda b: _program(b).unlink(),
    "a lease of one that is gone": lambda b: (_program(b).unlink(), (b / "lease").write_bytes(b"dead:1")),
    "a lease that is no text": lambda b: (_program(b).unlink(), (b / "lease").write_bytes(b"\xff\xfe")),
    "a lease that is a folder": lambda b: (_program(b).unlink(), _replace("lease", os.mkdir)(b)),
    "a lease that is a FIFO": lambda b: (_program(b).unlink(), _replace("lease", os.mkfifo)(b)),
    "a lock that is a folder": lambda b: (_program(b).unlink(), _replace("lock", os.mkdir)(b)),
    "a lock that is a FIFO": lambda b: (_program(b).unlink(), _replace("lock", os.mkfifo)(b)),
    "a lock that is a link": lambda b: (
        _program(b).unlink(),
        _replace("lock", lambda path: path.symlink_to(b.parent / "victim"))(b),
    ),
    "the folder is gone": shutil.rmtree,
    "the folder is a file": lambda b: (shutil.rmtree(b), b.write_text("x")),
    "the folder is a dangling link": lambda b: (shutil.rmtree(b), b.symlink_to("/nowhere/at/all")),
}


@pytest.mark.parametrize("fault", list(INSTEAD))
def test_where_nothing_is_of_use_a_rank_helps_itself(board: pathlib.Path, made: list[int], fault: str) -> None:
    made.clear()
    INSTEAD[fault](board)
    victim = board.parent / "victim"
    victim.write_text("precious")
    rank = Rank(board.parent).works()
    assert len(made) == 1 or rank.alone == 2
    assert victim.read_text() == "precious"  # a planted link leads nobody to write there


WRITES = {
    "the disk is full": OSError(28, "No space left on device"),
    "the disk may only be read": OSError(30, "Read-only file system"),
    "it is not allowed": PermissionError(13, "Permission denied"),
    "the disk is broken": OSError(5, "Input/output error"),
    "the file handle is stale": OSError(116, "Stale file handle"),
}


@pytest.mark.parametrize("when", ["at once", "when the program is there"])
@pytest.mark.parametrize("fault", list(WRITES))
def test_a_disk_that_fails(
    made: list[int], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, fault: str, when: str
) -> None:
    stock = storage.write

    def write(url: str, data: bytes) -> None:
        if when == "at once" or str(url).endswith(".any"):
            raise WRITES[fault]
        stock(url, data)

    monkeypatch.setattr(storage, "write", write)
    rank = Rank(tmp_path).works()
    if when == "at once":
        assert rank.alone == 2 and not made
    else:
        assert rank.alone == 0 and len(made) == 1  # what was made is of use here
    assert len(rank.reasons) == 1 and str(WRITES[fault].strerror) in rank.reasons[0]


def test_a_folder_that_cannot_be_made(made: list[int], tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("x")
    rank = Rank(tmp_path / "file" / "board").works()
    assert rank.alone == 2 and "cannot be used" in rank.reasons[0]


@pytest.mark.parametrize("url", ["nosuch://x/y", "http://127.0.0.1:9/x", "zip://x::nosuch://y"])
def test_a_url_that_is_none(made: list[int], url: str) -> None:
    rank = Rank(url).works()
    assert rank.alone == 2 and "cannot be used" in rank.reasons[0]


class Dead:
    """A store whose host is gone, from some request on."""

    def __init__(self, after: int) -> None:
        self._left, self._store = after, dist.HashStore()

    def __getattr__(self, name: str) -> Any:
        if self._left <= 0:
            raise RuntimeError("Connection reset by peer")
        self._left -= 1
        return getattr(self._store, name)


@pytest.mark.parametrize("after", [0, 1, 2, 3, 4, 5, 6, 8, 10, 12])
def test_a_store_that_is_gone(
    made: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, after: int
) -> None:
    rank = Rank(tmp_path)
    store = Dead(after)
    rank.shared.__dict__["_board"] = Watched(lambda: StoreBoard(store))
    rank.works()
    assert rank.alone + len(made) >= 1 and (rank.reasons or after >= 10)


def test_interrupts_and_the_end_of_memory_are_the_callers(made: list[int], tmp_path: pathlib.Path) -> None:
    for kind in (KeyboardInterrupt, SystemExit, MemoryError):
        rank = Rank(tmp_path / kind.__name__)

        def fail(kind: type = kind) -> Any:
            raise kind

        rank.shared.__dict__["_board"] = Watched(fail)
        with pytest.raises(kind):
            rank.call(X, INDEX)
        del rank.shared.__dict__["_board"]
        rank.works()
        assert rank.alone == 0 and not rank.reasons


def test_the_callers_own_error_stays_its_own(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        def __init__(self, live: Any, **options: Any) -> None:
            pass

        def make(self, args: Any, kwargs: Any) -> Any:
            raise ZeroDivisionError("of the function")

    monkeypatch.setattr(one_rank, "Workshop", Failing)
    rank = Rank(tmp_path)
    with pytest.raises(ZeroDivisionError, match="of the function"):
        rank.call(X, INDEX)
    assert not rank.reasons and DirectoryBoard(str(next(tmp_path.iterdir()))).peek() == agreement.FREE


def test_two_writers_of_one_board(made: list[int], tmp_path: pathlib.Path) -> None:
    ranks = [Rank(tmp_path, patience=20.0) for _ in range(4)]
    start, wrong = threading.Barrier(4), []

    def run(rank: Rank) -> None:
        start.wait()
        try:
            torch.testing.assert_close(rank.call(X, INDEX), callables.picks(X, INDEX))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(made) == 1 and not any(rank.alone or rank.reasons for rank in ranks)


@pytest.mark.parametrize("years", [-30, 30])
def test_a_clock_that_is_wrong(board: pathlib.Path, made: list[int], years: int) -> None:
    made.clear()
    then = time.time() + years * 365 * 24 * 3600
    for path in board.iterdir():
        os.utime(path, (then, then))
    assert Rank(board.parent).works().alone == 0 and not made


def test_every_trouble_is_of_one_kind() -> None:
    def fail() -> Any:
        raise ValueError("a\x1b[2Jb\nc")

    with pytest.raises(Unreachable, match=r"^ValueError: a\\x1b\[2Jb$"):
        Watched(fail).names()
    assert Watched(lambda: UrlBoard("memory://a-board-of-test")).names() == []
