"""One rank compiles and the others load: real processes with gloo, a shared directory, a rank that dies."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

import anyshape
from anyshape.ahead.agreement import FREE, DirectoryBoard, Lease, StoreBoard, UrlBoard
from anyshape.errors import Error

HERE = pathlib.Path(__file__).parent


def environment(tmp_path: pathlib.Path, **more: str) -> dict[str, str]:
    path = os.pathsep.join(
        filter(None, [str(pathlib.Path(anyshape.__file__).parents[1]), os.environ.get("PYTHONPATH")])
    )
    own = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    return {**os.environ, **own, **more}


def torchrun(tmp_path: pathlib.Path, mode: str, *, ranks: int, steps: int) -> list[dict[str, Any]]:
    reports = tmp_path / "reports"
    reports.mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(ranks), "--standalone"]
    command += [str(HERE / "rank.py"), str(reports), mode, str(steps)]
    ran = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=550)
    assert ran.returncode == 0, ran.stderr[-4000:]
    return read(reports)


def read(reports: pathlib.Path) -> list[dict[str, Any]]:
    return [json.loads(p.read_text()) for p in sorted(reports.glob("*.json"))]


def test_two_ranks(tmp_path: pathlib.Path) -> None:
    reports = torchrun(tmp_path, "function", ranks=2, steps=8)
    assert [r["behaviours"] for r in reports] == [["x.shape[0] <= 8", "x.shape[0] > 8"]] * 2
    assert sum(r["lowered"] for r in reports) == 2  # one for each behavior in the whole job


@pytest.mark.slow
def test_four_ranks_and_forty_steps(tmp_path: pathlib.Path) -> None:
    reports = torchrun(tmp_path, "function", ranks=4, steps=40)
    assert [r["programs"] for r in reports] == [2] * 4
    assert sum(r["lowered"] for r in reports) == 2


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["training", "ddp", "fsdp"])
def test_training_on_ranks(tmp_path: pathlib.Path, mode: str) -> None:
    reports = torchrun(tmp_path, mode, ranks=2, steps=8)
    assert [r["programs"] for r in reports] == [2] * 2
    assert sum(r["lowered"] for r in reports) == 4  # two behaviors, forward and backward


@pytest.mark.slow
def test_a_rank_that_dies_while_it_compiles(tmp_path: pathlib.Path) -> None:
    """torchrun would stop the whole job, so the ranks are started by hand, with the store in this process."""
    ranks, patience = 4, 8.0
    reports = tmp_path / "reports"
    reports.mkdir()
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    store = dist.TCPStore("localhost", port, is_master=True, wait_for_workers=False)
    children = []
    for rank in range(ranks):
        more = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "STORE_PORT": str(port), "VICTIM": "1"}
        env = environment(tmp_path, ANYSHAPE_PATIENCE=str(patience), **more)
        command = [sys.executable, str(HERE / "rank.py"), str(reports), "function", "40"]
        children.append(subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True))
    began = time.monotonic()
    codes = [c.wait(timeout=500) for c in children]
    assert codes[1] == -signal.SIGKILL
    errors = [c.stderr.read()[-2000:] for c in children if c.stderr is not None]
    assert [codes[i] for i in (0, 2, 3)] == [0, 0, 0], (time.monotonic() - began, errors)
    found = read(reports)
    assert [r["rank"] for r in found] == [0, 2, 3]
    assert sum(r["lowered"] for r in found) == 2
    assert max(r["seconds"] for r in found) < patience + 300
    del store


def race(tmp_path: pathlib.Path, rounds: int, processes: int) -> None:
    reports = tmp_path / "reports"
    reports.mkdir()
    command = [sys.executable, str(HERE / "race.py"), str(reports), str(rounds), str(processes)]
    ran = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=550)
    assert ran.returncode == 0, ran.stderr[-4000:]
    for number in range(rounds):
        found = [json.loads((reports / f"{number}-{i}.json").read_text()) for i in range(processes)]
        assert sum(r["lowered"] for r in found) == 1, found  # one writer
        assert [r["programs"] for r in found] == [1] * processes
        files = sorted(p.suffix for p in (reports / f"round-{number}").rglob("*") if p.is_file())
        assert files.count(".any") == 1 and ".tmp" not in files


def test_processes_over_a_shared_directory(tmp_path: pathlib.Path) -> None:
    race(tmp_path, rounds=1, processes=3)


@pytest.mark.slow
def test_twenty_starts_over_a_shared_directory(tmp_path: pathlib.Path) -> None:
    race(tmp_path, rounds=20, processes=6)


# -- the lease ------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["store", "directory", "url"])
def board(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Any:
    if request.param == "store":
        return StoreBoard(dist.HashStore())
    if request.param == "url":
        return UrlBoard(f"memory://board-{tmp_path.name}-{request.node.name}")
    return DirectoryBoard(str(tmp_path / "board"))


def test_what_is_pinned_up_is_there_for_all(board: Any) -> None:
    assert board.names() == []
    data = [os.urandom(3 << 20), b"x"]
    for d in data:
        board.publish(d)
    assert sorted(map(len, (board.fetch(n) for n in board.names()))) == [1, 3 << 20]
    assert {board.fetch(n) for n in board.names()} == set(data)


def test_one_holds_the_lease(board: Any) -> None:
    one, two = Lease(board, patience=60), Lease(board, patience=60)
    assert one.take()
    with one.hold():
        assert not two.take()
    assert board.peek() == FREE and two.take()


def test_a_silent_holder_is_taken_over_and_one_that_is_alive_is_not(board: Any) -> None:
    dead, alive, waiting = (Lease(board, patience=0.3) for _ in range(3))
    assert dead.take() and not waiting.take() and not alive.take()
    time.sleep(0.4)
    assert alive.take()
    with alive.hold():
        until = time.monotonic() + 1.2
        while time.monotonic() < until:
            assert not waiting.take()
            time.sleep(0.05)
    assert waiting.take()


def test_of_many_one_gets_the_lease(tmp_path: pathlib.Path) -> None:
    boards = [DirectoryBoard(str(tmp_path)) for _ in range(8)]
    got: list[bool] = []
    start = threading.Barrier(8)

    def try_it(board: DirectoryBoard) -> None:
        lease = Lease(board, patience=60)
        start.wait()
        got.append(lease.take())

    threads = [threading.Thread(target=try_it, args=(b,)) for b in boards]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got.count(True) == 1


# -- what it takes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", ["4", "many", "1.5", "-1"])
def test_nothing_to_agree_through(monkeypatch: pytest.MonkeyPatch, ranks: str) -> None:
    f = anyshape.compile(torch.sin, distributed="one-rank")
    monkeypatch.setenv("WORLD_SIZE", ranks)
    with pytest.raises(Error, match="AS057") as caught:
        f(torch.randn(3))
    assert "init_process_group" in str(caught.value)


def test_other_words_and_other_backends_are_refused() -> None:
    with pytest.raises(Error, match="AS0"):
        anyshape.compile(torch.sin, distributed="two-ranks")
    with pytest.raises(Error, match="AS007"):
        anyshape.compile(torch.sin, distributed="one-rank", backend="eager")
