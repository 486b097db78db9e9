"""When sizes get a variant, and when one goes: with clocks and makers of our own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from anyshape.variants.hot_sizes import WORKER, HotSizes, Policy, Worker


class Clock:
    """Says how long calls took without taking any time; one value for each kind of code."""

    now = 0.0

    def __init__(self) -> None:
        self.took: list[float] = []

    def start(self) -> float:
        return Clock.now

    def stop(self, started: float) -> None:
        self.took.append(Clock.now - started)

    def median(self) -> float | None:
        return sorted(self.took)[len(self.took) // 2] if self.took else None


def costing(seconds: float, name: str) -> Callable[..., Any]:
    def run(*args: Any) -> tuple[str, Any]:
        Clock.now += seconds
        return name, args[0]

    return run


def make_tiers(*, fast: float = 0.5, policy: Policy | None = None, fails: bool = False, **rest: Any) -> HotSizes:
    def make(args: Sequence[Any]) -> Callable[[], Callable[..., Any]]:
        def job() -> Callable[..., Any]:
            if fails:
                raise RuntimeError("no such luck")
            return costing(fast, f"for {args[0]}")

        return job

    return HotSizes(
        costing(1.0, "general"),
        make=make,
        key=lambda args: (args[0],),
        text=lambda key: f"n == {key[0]}",
        clock=Clock,
        compile_seconds=lambda: 20.0,
        policy=policy or Policy(samples=4),
        worker=Worker(),
        **rest,
    )


def call(tiers: HotSizes, size: int, times: int) -> list[str]:
    names = []
    for _ in range(times):
        names.append(tiers(size)[0])
        assert tiers._worker.wait([tiers], 10)
    return names


def test_a_size_is_hot_when_it_cost_as_much_as_compiling() -> None:
    tiers = make_tiers()
    names = call(tiers, 7, 30)
    assert names == ["general"] * 20 + ["for 7"] * 10
    (variant,) = tiers.variants
    assert (variant.text, variant.calls) == ("n == 7", 10)


def test_others_stay_with_the_general_program() -> None:
    tiers = make_tiers()
    call(tiers, 7, 25)
    assert call(tiers, 8, 5) == ["general"] * 5


def test_a_call_gets_the_code_for_its_own_size() -> None:
    tiers = make_tiers()
    for size in (3, 5):
        call(tiers, size, 25)
    assert call(tiers, 3, 1) + call(tiers, 5, 1) + call(tiers, 4, 1) == ["for 3", "for 5", "general"]


@pytest.mark.parametrize(("fast", "stays"), [(0.99, True), (1.0, False), (3.0, False)])
def test_a_variant_that_is_no_faster_goes(fast: float, stays: bool) -> None:
    tiers = make_tiers(fast=fast)
    call(tiers, 7, 40)
    assert (len(tiers.variants) == 1) is stays
    assert bool(tiers.dropped) is not stays
    if not stays:
        assert call(tiers, 7, 3) == ["general"] * 3
        (reason,) = tiers.dropped
        assert reason.startswith("n == 7 is no faster")


def test_a_variant_that_cannot_be_made_is_said_so_and_not_tried_again() -> None:
    tiers = make_tiers(fails=True)
    assert call(tiers, 7, 60) == ["general"] * 60
    assert dict(tiers.dropped) == {"n == 7 could not be compiled: RuntimeError: no such luck": 1}


def test_no_more_are_made_when_there_is_no_room_for_their_code() -> None:
    """What is loaded stays loaded, so nothing is gained by giving one up."""
    sizes = iter(range(0, 1000, 100))
    tiers = make_tiers(policy=Policy(samples=4, most_bytes=150), loaded=lambda: next(sizes))
    for size in (1, 2, 3, 4):
        call(tiers, size, 25)
    assert [(v.text, v.code_bytes) for v in tiers.variants] == [("n == 1", 100), ("n == 2", 100)]
    assert dict(tiers.dropped) == {"no room for more code (ANYSHAPE_VARIANT_BYTES)": 2}
    assert call(tiers, 1, 1) + call(tiers, 3, 1) == ["for 1", "general"]


def test_the_least_called_makes_room() -> None:
    tiers = make_tiers(policy=Policy(samples=2, most=2))
    for size in (1, 2):
        call(tiers, size, 25)
    call(tiers, 2, 50)
    call(tiers, 3, 60)
    assert {v.text for v in tiers.variants} == {"n == 2", "n == 3"}
    assert tiers.dropped["called less than others"] == 1


def test_many_short_calls_are_hot_too() -> None:
    tiers = make_tiers(policy=Policy(samples=2, calls=9, share=1e9))
    assert call(tiers, 7, 10)[-1] == "for 7"


def test_clauses_name_the_sizes() -> None:
    tiers = make_tiers(wanted=lambda key: key[0] % 2 == 0)
    assert call(tiers, 4, 4)[-1] == "for 4"
    assert call(tiers, 5, 100) == ["general"] * 100


def test_sizes_are_forgotten_and_variants_are_not() -> None:
    tiers = make_tiers(policy=Policy(samples=2, most_keys=50))
    call(tiers, 7, 25)
    for size in range(1000, 1500):
        tiers(size)
    assert len(tiers._sizes) <= 50
    assert call(tiers, 7, 1) == ["for 7"]


def test_threads_make_one_variant() -> None:
    made = []
    tiers = make_tiers()
    stock = tiers._make
    tiers._make = lambda args: made.append(args) or stock(args)
    threads = [threading.Thread(target=lambda: [tiers(7) for _ in range(200)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tiers._worker.wait([tiers], 10)
    assert len(made) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_has_a_worker_of_its_own() -> None:
    assert WORKER.wait([], 1)
    WORKER.submit(WORKER, lambda: None)  # a thread that the child does not have
    pid = os.fork()
    if pid == 0:
        done = threading.Event()
        WORKER.submit(done, done.set)
        os._exit(0 if done.wait(10) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


class Even:
    """Code for even sizes."""

    text = "n % 2 == 0"

    def __init__(self, seconds: float) -> None:
        self.run = costing(seconds, "for even")

    def admits(self, key: Any) -> bool:
        return bool(key[0] % 2 == 0)


def hot(tiers: HotSizes, n: int) -> Any:
    for _ in range(30):
        tiers(n)
    assert tiers._worker.wait([tiers], 10)
    for _ in range(5):
        tiers(n)
    return tiers(n)[0]


def test_several_hot_sizes_get_code_for_what_they_have_in_common() -> None:
    asked: list[Any] = []
    tiers = make_tiers(
        policy=Policy(samples=4, most=3), make_shared=lambda keys: asked.append(keys) or (lambda: Even(0.6))
    )
    assert [hot(tiers, n) for n in (2, 4, 6)] == ["for 2", "for 4", "for 6"]
    assert hot(tiers, 8) == "for even"
    assert asked == [[(2,), (4,), (6,), (8,)]]
    assert hot(tiers, 10) == "for even"  # it is there
    assert len(asked) == 1
    assert [v.text for v in tiers.variants] == ["n == 2", "n == 4", "n == 6", "n % 2 == 0"]
    assert len(tiers.made()) == 3


def test_what_it_is_not_for_gets_code_of_its_own() -> None:
    tiers = make_tiers(policy=Policy(samples=4, most=3), make_shared=lambda keys: lambda: Even(0.6))
    for n in (2, 4, 6, 8):
        hot(tiers, n)
    hot(tiers, 9)
    assert hot(tiers, 9) == "for 9"


def test_what_is_no_faster_with_shared_code_gets_its_own() -> None:
    tiers = make_tiers(policy=Policy(samples=4, most=3), make_shared=lambda keys: lambda: Even(2.0))
    for n in (2, 4, 6):
        hot(tiers, n)
    hot(tiers, 8)
    assert hot(tiers, 8) == "for 8"


def test_shared_code_that_cannot_be_made() -> None:
    def fails() -> Any:
        raise RuntimeError("no such luck")

    tiers = make_tiers(policy=Policy(samples=4, most=3), make_shared=lambda keys: fails)
    for n in (2, 4, 6):
        hot(tiers, n)
    hot(tiers, 8)
    assert hot(tiers, 8) == "for 8"
    assert any("several sizes" in reason for reason in tiers.dropped)


def test_sizes_with_nothing_in_common() -> None:
    tiers = make_tiers(policy=Policy(samples=4, most=3), make_shared=lambda keys: None)
    assert [hot(tiers, n) for n in (2, 4, 6)] == ["for 2", "for 4", "for 6"]
    for _ in range(4):
        last = hot(tiers, 9)
    assert last == "for 9"  # it is called more than another one
