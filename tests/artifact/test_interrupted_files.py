"""Interrupted loads, saves and looks at files: what a handler of the user's raises arrives, at whichever line it comes.

Handlers like to raise TimeoutError, which is an OSError: what reads files takes those for troubles of a disk.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import anyshape
from anyshape.artifact import inspecting
from anyshape.foundation import interrupts

pytestmark = pytest.mark.skipif(not hasattr(signal, "raise_signal"), reason="signals are those of POSIX")
ROOT = str(pathlib.Path(anyshape.__file__).parent)
KEY = b"k" * 32


class Deadline(Exception):
    pass


KINDS = (Deadline, TimeoutError, KeyboardInterrupt, MemoryError, RecursionError, SystemExit, ValueError, ImportError)


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + x.shape[0]


def check(f: Callable[..., Any]) -> None:
    x = torch.randn(5)
    with torch.no_grad():
        assert torch.equal(f(x), double(x))


@contextlib.contextmanager
def lines(act: Callable[[str], None]) -> Iterator[None]:
    """Run `act` at each line of anyshape's."""

    def trace(frame: Any, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(ROOT):
            return None
        if event == "line":
            act(f"{pathlib.Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def interrupted(run: Callable[[], object], moments: int, *, only: str = "") -> None:
    """Interrupt it that often, at lines chosen at random or, with `only`, at those of a module."""
    seen: list[str] = []
    run()
    with lines(seen.append):
        run()
    chosen = [n for n, place in enumerate(seen) if place.startswith(only)]
    chosen = sorted(random.Random(0).sample(chosen, min(moments, len(chosen))))
    assert chosen
    raised: list[type[BaseException]] = []

    def handle(*_: Any) -> None:
        raise raised[-1]("the user's")

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        for number, moment in enumerate(chosen):
            kind, count = KINDS[number % len(KINDS)], [0]

            def act(place: str, count: list[int] = count, moment: int = moment) -> None:
                count[0] += 1
                if count[0] == moment + 1:
                    sys.settrace(None)
                    signal.raise_signal(signal.SIGUSR1)

            raised.append(kind)
            with pytest.raises(kind, match="the user's"), lines(act):
                run()
                assert count[0] <= moment, seen[moment]  # else it was lost
                raise kind("the user's")  # it took fewer lines this time
            run()
            assert signal.getsignal(signal.SIGUSR1) is handle, seen[moment]
            assert not interrupts._holds and not interrupts._waiting
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.fixture(scope="module")
def artifact() -> anyshape.Artifact:
    with torch.no_grad():
        return anyshape.precompile(double, (torch.randn(3),))


def ways(artifact: anyshape.Artifact, folder: pathlib.Path) -> dict[str, Callable[[], object]]:
    path = folder / "f.any"
    artifact.save(path, key=KEY)
    path.chmod(0o644)
    return {
        "load": lambda: check(anyshape.load(path, double, key=KEY)),
        "load from a trusted folder": lambda: check(anyshape.load(path, double)),
        "save": lambda: artifact.save(folder / "g.any", key=KEY),
        "inspect": lambda: inspecting.text(inspecting.inspect(str(path))),
        "verify": lambda: inspecting.verify(str(path), key=KEY),
    }


WAYS = ("load", "load from a trusted folder", "save", "inspect", "verify")


@pytest.mark.parametrize("way", WAYS)
def test_an_interrupt_arrives_at_any_line(
    artifact: anyshape.Artifact, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("ANYSHAPE_TRUSTED", str(tmp_path))
    tmp_path.chmod(0o755)
    interrupted(ways(artifact, tmp_path)[way], 60)
    assert not [p for p in os.listdir(tmp_path) if p.endswith(".tmp")]


def test_an_interrupt_arrives_where_interrupts_are_seen_to(artifact: anyshape.Artifact, tmp_path: pathlib.Path) -> None:
    interrupted(ways(artifact, tmp_path)["inspect"], 240, only="interrupts.py")


def test_an_interrupt_arrives_while_ranks_agree(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is nobody's trouble with a board, and no reason to compile here."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("ANYSHAPE_PATIENCE", "2")

    def run() -> None:
        f: Any = anyshape.compile(double, distributed="one-rank", artifacts=str(tmp_path))
        check(f)
        assert not f.fallbacks

    with warnings.catch_warnings():
        warnings.simplefilter("error", anyshape.FallbackWarning)
        interrupted(run, 60)


def test_one_whose_end_was_lost_is_ended_by_the_next() -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        own = signal.getsignal(signal.SIGUSR1)

        def begin() -> None:
            interrupts.heeded().__enter__()

        begin()
        assert signal.getsignal(signal.SIGUSR1) is not own
        with interrupts.heeded():
            pass
        assert signal.getsignal(signal.SIGUSR1) is own
    finally:
        signal.signal(signal.SIGUSR1, before)
