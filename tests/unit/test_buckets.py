"""Buckets: which sizes fall into which, when one gets code, and who serves a call then."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from anyshape.variants import buckets
from anyshape.variants.buckets import CONTIGUOUS, NUMBER, REDUCED, ROWS, STRIDE, Axis, Plan
from anyshape.variants.hot_buckets import BucketPolicy, HotBuckets
from anyshape.variants.hot_sizes import Policy, Worker

ROLES = (REDUCED, CONTIGUOUS, ROWS, NUMBER, STRIDE)
EDGES = sorted({max(0, (1 << i) + d) for i in range(19) for d in (-17, -16, -1, 0, 1, 15, 16)})


@pytest.mark.parametrize("role", ROLES)
def test_each_size_has_one_bucket_whose_facts_hold_of_it(role: str) -> None:
    plan = Plan([Axis("n", 0, role)])
    texts: dict[Any, str] = {}
    for n in EDGES:
        bucket = plan.choose((n,))
        if bucket is None:
            assert n < buckets._LEAST[role]
            continue
        (facts,) = plan.facts(bucket)
        assert facts.least <= n and (facts.most is None or n <= facts.most) and n % facts.divisor == 0
        assert facts.is_multiple is None or facts.is_multiple == (n % 16 == 0)
        holds = eval(facts.text("n").replace(",", " and "), {"n": n})
        assert holds
        texts[bucket] = facts.text("n")
    assert len(set(texts.values())) == len(texts)
    for n in EDGES:  # the words of a bucket are true of its sizes alone
        told = [b for b, text in texts.items() if eval(text.replace(",", " and "), {"n": n})]
        assert told == ([plan.choose((n,))] if plan.choose((n,)) is not None else [])


def test_in_words() -> None:
    plan = Plan([Axis("x.shape[0]", 0, ROWS), Axis("x.shape[1]", 1, REDUCED), Axis("x.stride(1)", 3, STRIDE)])
    texts = {key: plan.text(plan.choose(key) or ()) for key in [(1, 1024, 0, 5), (65, 513, 0, 32), (64, 1 << 20, 0, 2)]}
    assert list(texts.values()) == [
        "x.shape[0] == 1 and 512 < x.shape[1] <= 1024, x.shape[1] % 16 == 0 and x.stride(1) % 16 != 0",
        "x.shape[0] > 64 and 512 < x.shape[1] <= 1024, x.shape[1] % 16 != 0 and x.stride(1) % 16 == 0",
        "2 <= x.shape[0] <= 64 and x.shape[1] > 131072, x.shape[1] % 16 == 0 and x.stride(1) % 16 != 0",
    ]


@pytest.mark.parametrize("size", [n for n in EDGES if n > 1])
def test_neighbors_are_one_power_of_two_away(size: int) -> None:
    plan = Plan([Axis("m", 0, ROWS), Axis("n", 1, REDUCED)])
    bucket = plan.choose((3, size))
    assert bucket is not None
    for near, instead in plan.neighbors(bucket, (3, size)):
        assert plan.choose((3, instead[1])) == near
        assert abs(near[2] - bucket[2]) == 1 and near[3] == bucket[3] and near[:2] == bucket[:2]


class Clock:
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
        Clock.now += seconds * args[0]
        return name, args[0]

    return run


class Code:
    def __init__(
        self,
        text: str,
        seconds: float,
        admits: Callable[[Any], bool] = lambda key: True,
        other: Callable[[], Code] | None = None,
    ) -> None:
        self.text, self.admits, self.other = text, admits, other
        self.run = costing(seconds, text)


def make_tiers(
    *,
    fast: float = 0.5,
    fails: bool = False,
    admits: Callable[[Any], bool] = lambda key: True,
    moved: Any = None,
    policy: Policy | None = None,
    asked: list[Any] | None = None,
    loaded: Callable[[], int] = lambda: 0,
    others: tuple[float, ...] = (),
    **words: Any,
) -> HotBuckets:
    plan = Plan([Axis("n", 0, REDUCED)])

    def make_bucket(bucket: Any, key: Any) -> Callable[[], Code]:
        if asked is not None:
            asked.append((plan.text(bucket), key))

        def job() -> Code:
            if fails:
                raise RuntimeError("no such luck")
            made = None
            for seconds in reversed((fast, *others)):
                made = functools.partial(Code, plan.text(bucket), seconds, admits, made)
            assert made is not None
            return made()

        return job

    settings: dict[str, Any] = {"samples": 2, "calls": 10, "exact_calls": 10**9, "exact_share": 1e9, **words}
    return HotBuckets(
        costing(1.0, "general"),
        plan=plan,
        make_bucket=make_bucket,
        moved=moved or (lambda key, instead: None),
        bucket_policy=BucketPolicy(**settings),
        make=lambda args: lambda: costing(0.25, f"for {args[0]}"),
        key=lambda args: (args[0],),
        text=lambda key: f"n == {key[0]}",
        clock=Clock,
        compile_seconds=lambda: 1e6,
        policy=policy or Policy(samples=2),
        worker=Worker(),
        loaded=loaded,
    )


def call(tiers: HotBuckets, *sizes: int) -> list[str]:
    names = []
    for n in sizes:
        name, given = tiers(n)
        assert given == n
        names.append(name)
        assert tiers._worker.wait([tiers], 10)
    return names


ODD, EVEN = "512 < n <= 1024, n % 16 != 0", "512 < n <= 1024, n % 16 == 0"
SIZES = list(range(700, 715))  # 704 is a multiple of 16


def odd(start: int, count: int) -> list[int]:
    return [n for n in range(start, start + 2 * count) if n % 16][:count]


def test_heat_is_counted_over_all_sizes_of_a_bucket() -> None:
    asked: list[Any] = []
    tiers = make_tiers(asked=asked)
    assert call(tiers, *odd(600, 10)) == ["general"] * 10
    assert asked == [(ODD, (odd(600, 10)[-1],))]
    names = call(tiers, *odd(700, 6))  # the trial: the first call is not judged, then they take turns
    assert names[0] == ODD and set(names[1:]) == {ODD, "general"}
    assert call(tiers, 1023, 513, 600) == [ODD] * 3  # a size never seen before, too
    assert call(tiers, 1024, 512, 1025, 704, 1, 0) == ["general"] * 6
    (variant,) = tiers.variants
    assert (variant.text, variant.calls) == (ODD, 4)
    assert not tiers.dropped


def test_sizes_of_a_bucket_are_forgotten_and_their_calls_are_not() -> None:
    tiers = make_tiers(policy=Policy(samples=2, most_keys=20))
    call(tiers, *odd(520, 20))
    assert set(call(tiers, *odd(600, 200))) == {ODD}
    assert len(tiers._sizes) <= 20
    (variant,) = tiers.variants
    assert variant.calls >= 200


@pytest.mark.parametrize(("fast", "stays"), [(0.99, True), (1.0, False), (3.0, False)])
def test_code_that_is_no_faster_goes(fast: float, stays: bool) -> None:
    tiers = make_tiers(fast=fast)
    call(tiers, *odd(520, 60))
    assert bool(tiers.variants) is stays
    if not stays:
        (reason,) = tiers.dropped
        assert reason.startswith(f"{ODD} is no faster")
        assert call(tiers, 521, 777) == ["general"] * 2


@pytest.mark.parametrize(("others", "stays"), [((0.5,), True), ((2.0, 0.5), True), ((2.0, 1.0), False)])
def test_code_with_other_kernels_is_tried_before_a_bucket_is_left(others: tuple[float, ...], stays: bool) -> None:
    tiers = make_tiers(fast=3.0, others=others)
    call(tiers, *odd(520, 90))
    assert bool(tiers.variants) is stays
    assert bool(tiers.dropped) is not stays
    assert call(tiers, 521, 777) == ([ODD] if stays else ["general"]) * 2


def test_the_same_sizes_are_compared_where_both_ran_them() -> None:
    """A bucket holds sizes that differ by a factor of two, and by more in other axes."""
    tiers = make_tiers(fast=1.01)
    call(tiers, *[521] * 10, *[521, 1023] * 20)
    assert not tiers.variants


def test_a_bucket_that_cannot_be_compiled_is_counted_and_general_code_goes_on() -> None:
    tiers = make_tiers(fails=True)
    assert call(tiers, *odd(600, 60)) == ["general"] * 60
    assert dict(tiers.dropped) == {f"{ODD} could not be compiled: RuntimeError: no such luck": 1}
    assert call(tiers, *[601] * 30) == ["general"] * 30  # 601 may still have code of its own


def test_a_key_that_the_code_is_not_for() -> None:
    tiers = make_tiers(admits=lambda key: key[0] < 900)
    call(tiers, *odd(600, 20))
    assert call(tiers, 899, 901, 777, 901) == [ODD, "general", ODD, "general"]


def test_code_that_is_not_for_what_it_was_made_for() -> None:
    tiers = make_tiers(admits=lambda key: False)
    assert call(tiers, *odd(600, 30)) == ["general"] * 30
    assert dict(tiers.dropped) == {f"{ODD} has code that is not for it": 1}


def test_no_more_than_may_have_code() -> None:
    tiers = make_tiers(most=2)
    for base in (600, 1100, 2100, 4100):
        call(tiers, *odd(base, 30))
    assert len(tiers.variants) == 2
    assert tiers.dropped["as many buckets have code as may (ANYSHAPE_BUCKETS)"] == 2


def test_the_budget_for_code_is_that_of_variants() -> None:
    made = iter(range(0, 1000, 100))
    tiers = make_tiers(policy=Policy(samples=2, most_bytes=50), loaded=lambda: next(made))
    for base in (600, 1100):
        call(tiers, *odd(base, 30))
    assert [v.code_bytes for v in tiers.variants] == [100]
    assert tiers.dropped["no room for more code (ANYSHAPE_VARIANT_BYTES)"] == 1


def test_neighbors_are_made_when_sizes_vary() -> None:
    for sizes, expected in (([601] * 40, 1), (odd(600, 40), 3)):
        asked: list[Any] = []
        tiers = make_tiers(asked=asked, moved=lambda key, instead: (instead[0],))
        call(tiers, *sizes)
        assert len(asked) == expected, asked
    assert {text for text, _ in asked} == {ODD, "256 < n <= 512, n % 16 != 0", "1024 < n <= 2048, n % 16 != 0"}
    assert call(tiers, 1501) == ["1024 < n <= 2048, n % 16 != 0"]  # at its first call
    assert len(tiers.variants) == 1  # those that were not tried yet are not said to serve


def test_the_hottest_sizes_have_code_of_their_own() -> None:
    tiers = make_tiers(exact_calls=100, exact_share=1.0)
    call(tiers, *odd(600, 20))
    names = call(tiers, *[777] * 150)
    assert names[0] == ODD and names[-1] == "for 777"
    assert call(tiers, 779, 777) == [ODD, "for 777"]
    assert {v.text for v in tiers.variants} == {ODD, "n == 777"}
    assert [text for _, text, _ in tiers.made()] == ["n == 777"]


def test_a_size_whose_own_code_is_no_faster_goes_back_to_its_bucket() -> None:
    tiers = make_tiers(fast=0.2, exact_calls=100, exact_share=1.0)
    call(tiers, *odd(600, 20))
    assert call(tiers, *[777] * 150)[-1] == ODD
    assert {v.text for v in tiers.variants} == {ODD}
    assert any(reason.startswith("n == 777 is no faster") for reason in tiers.dropped)


def test_sizes_that_share_nothing_with_what_was_captured_stay_general() -> None:
    tiers = make_tiers()
    tiers.own = lambda key: key[0] != 777
    call(tiers, *odd(600, 20))
    assert call(tiers, 777, 779) == ["general", ODD]


def test_threads_make_one_code_for_a_bucket() -> None:
    asked: list[Any] = []
    tiers = make_tiers(asked=asked)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        for n in odd(520 + seed, 150):
            name, given = tiers(n)
            if given != n or name not in (ODD, "general"):
                wrong.append((name, n))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tiers._worker.wait([tiers], 10)
    assert not wrong and len(asked) == 1
