"""How many sizes of a program get a CUDA graph; the recording itself is torch's and needs a GPU."""

from __future__ import annotations

import collections
from typing import Any

import pytest

from anyshape._torch.compile.cuda_graphs import Bounded
from anyshape.foundation import limits


def counted(most: int | None = None) -> tuple[Bounded, dict[str, collections.Counter[Any]]]:
    calls: dict[str, collections.Counter[Any]] = {"recorded": collections.Counter(), "plain": collections.Counter()}

    def called(kind: str) -> Any:
        return lambda inputs: calls[kind].update([tuple(inputs)])

    return Bounded(called("recorded"), called("plain"), most), calls


def test_sizes_that_come_back_up_to_the_limit() -> None:
    run, calls = counted(2)
    for n in [1, 2, 3, 4] * 3:
        run([n, "a tensor"])
    assert run.sizes == {(1,), (2,)}
    assert calls["recorded"] == {(1, "a tensor"): 2, (2, "a tensor"): 2}
    assert calls["plain"] == {(1, "a tensor"): 1, (2, "a tensor"): 1, (3, "a tensor"): 3, (4, "a tensor"): 3}


def test_a_graph_without_sizes_is_recorded_at_once() -> None:
    run, calls = counted(1)
    run(["a tensor"])
    assert calls["recorded"] == {("a tensor",): 1}


def test_sizes_that_never_come_back_take_no_room_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anyshape._torch.compile.cuda_graphs._MOST_COUNTED", 10)
    run, calls = counted(4)
    for n in range(100):
        run([n])
    assert len(run._once) == 10
    assert not run.sizes and sum(calls["plain"].values()) == 100


def test_the_limit_is_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(limits.CUDA_GRAPHS, "0")
    run, calls = counted()
    for _ in range(3):
        run([7])
    assert calls["plain"] == {(7,): 3}
