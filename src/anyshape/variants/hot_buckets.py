"""Variants for hot buckets: when a bucket gets code, its trial against the general program, its budget.

Owns the heat of buckets, counted over all sizes in them, their budget, and the trial in which their code and the
general program's take turns. A key never seen before goes to the code of its bucket if that is there; a key on which
much more time is spent gets a variant of its own, as without buckets. Knows nothing of torch.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from anyshape.foundation import limits
from anyshape.programs import Variant
from anyshape.variants.buckets import Bucket, Key, Plan
from anyshape.variants.hot_sizes import NOT_COMPILED, Clock, HotSizes, Shared, _Sizes

Moved = Callable[[Key, dict[int, int]], "Key | None"]


@dataclasses.dataclass(frozen=True)
class BucketPolicy:
    """When a bucket is hot and what buckets may cost."""

    samples: int = 8  # calls that are timed before a bucket is thought of, and of either code in the trial
    share: float = 0.5  # of the time that compiling the program took, spent in a bucket, makes it hot
    calls: int = 200  # so do these many calls, however short
    most: int = dataclasses.field(default_factory=limits.buckets)  # that have code
    most_counted: int = 512  # that are counted
    most_share: float = 5.0  # of the time that compiling the program took; what exceeds it has to be earned in full
    sizes: int = 2  # different keys that a bucket needs for its neighbors to be made ahead of calls
    slower: float = 1.0  # code that takes this part of the general program's time, or more, is dropped
    exact_share: float = 2.0  # of the time of compiling, spent on one key, gets it code of its own
    exact_calls: int = 20_000  # so do these many calls


class _Bucket:
    """A bucket and what is known of the calls in it."""

    __slots__ = ("calls", "clocks", "code", "code_bytes", "first", "general", "keys", "samples", "seconds", "served")
    __slots__ += ("sides", "state", "until")  # type: ignore[assignment]

    def __init__(self) -> None:
        self.state = "heating"  # heating | making | tried | ready | left
        self.calls = 0  # of the general program
        self.until: float = 0
        self.keys: set[Key] = set()  # a few
        self.clocks: list[Clock] = []  # of the general program's calls
        self.general: float | None = None  # seconds a call
        self.code: Shared | None = None
        self.first = True  # its first call, which may load kernels and tune them
        self.sides: dict[Key, tuple[list[Clock], list[Clock]]] = {}  # of the trial: the general program's and its own
        self.samples = [0, 0]
        self.seconds = 0.0
        self.code_bytes = 0
        self.served = 0  # calls, of keys that are not remembered any more


class _BucketSizes(_Sizes):
    __slots__ = ("bucket", "by_bucket", "quiet")

    def __init__(self, clock: Clock | None) -> None:
        super().__init__(clock)
        self.bucket: _Bucket | None = None
        self.by_bucket = False  # `run` is its bucket's
        self.quiet: float = 0  # calls until it is asked again whether the key should have code of its own


class HotBuckets(HotSizes):
    """A general program, code for its buckets, and variants for the hottest sizes. Called as the program is."""

    def __init__(
        self,
        general: Callable[..., Any],
        *,
        plan: Plan,
        make_bucket: Callable[[Bucket, Key], Callable[[], Shared]],
        moved: Moved = lambda key, instead: None,
        bucket_policy: BucketPolicy | None = None,
        trial_clock: Callable[[], Clock] | None = None,
        **rest: Any,
    ) -> None:
        super().__init__(general, **rest)
        self._trial_clock = trial_clock or self._clock
        self._plan = plan
        self._make_bucket = make_bucket
        self._moved = moved
        self.bucket_policy = bucket_policy or BucketPolicy()
        self._buckets: dict[Bucket, _Bucket] = {}
        self._spent = 0.0  # seconds on code of buckets

    def __call__(self, *args: Any) -> Any:
        key = self._key(args)
        sizes: Any = self._sizes.get(key)
        if sizes is None:
            sizes = self._new(key)
        run = sizes.run
        if run is not None:
            sizes.recent += 1
            if sizes.recent < sizes.quiet or sizes.state == "served":
                return run(*args)
            return self._try(key, sizes, run, args)
        if sizes.state in ("compiling", "left"):
            return self._general(*args)
        return self._count(key, sizes, args)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Buckets first, by calls."""
        known = list(self._sizes.items())
        calls: collections.Counter[int] = collections.Counter()
        for _, sizes in known:
            if isinstance(sizes, _BucketSizes) and sizes.by_bucket:
                calls[id(sizes.bucket)] += sizes.served + sizes.recent
        ready = [b for b in list(self._buckets.values()) if b.state == "ready" and b.code is not None]
        made = [Variant(b.code.text, b.served + calls[id(b)], b.seconds, b.code_bytes) for b in ready if b.code]
        own = [(k, s) for k, s in known if _runs_alone(s)]
        exact = [Variant(self._text(k), s.served + s.recent, s.seconds, s.code_bytes) for k, s in own]
        return (*sorted(made, key=lambda v: -v.calls), *exact)

    def made(self) -> list[tuple[Key, str, Callable[..., Any]]]:
        found = [(k, s) for k, s in list(self._sizes.items()) if _runs_alone(s)]
        return [(k, self._text(k), s.run) for k, s in found if s.run is not None]

    # -- the way of a size ---------------------------------------------------------------------------------------

    def _new(self, key: Key) -> _Sizes:
        with self._lock:
            if len(self._sizes) >= self.policy.most_keys:
                self._forget()
            found = self._sizes.get(key)
            if found is not None:
                return found
            made = _BucketSizes(self._clock())
            if not self.own(key):
                made.state = "left"
            else:
                made.bucket = self._bucket_of(key)
            if made.bucket is not None and made.bucket.state == "ready":
                self._attach(key, made, made.bucket)
            self._sizes[key] = made
            return made

    def _forget(self) -> None:
        """Sizes without code of their own; their bucket is found again."""
        kept: dict[Key, _Sizes] = {}
        for key, sizes in self._sizes.items():
            if sizes.state == "compiling" or _runs_alone(sizes):
                kept[key] = sizes
            elif isinstance(sizes, _BucketSizes) and sizes.by_bucket and sizes.bucket is not None:
                sizes.bucket.served += sizes.served + sizes.recent
        self._sizes = kept

    def _bucket_of(self, key: Key) -> _Bucket | None:
        chosen = self._plan.choose(key)
        if chosen is None:
            return None
        found = self._buckets.get(chosen)
        if found is None and len(self._buckets) < self.bucket_policy.most_counted:
            found = self._buckets[chosen] = _Bucket()
        return found

    def _attach(self, key: Key, sizes: _BucketSizes, bucket: _Bucket) -> bool:
        """Have a key served by the code of its bucket, if that is for it."""
        code = bucket.code
        if code is None or not code.admits(key):
            sizes.bucket = None
            return False
        sizes.served, sizes.recent = sizes.served + sizes.recent, 0
        sizes.clock, sizes.samples, sizes.alone = None, 0, True
        sizes.by_bucket, sizes.state, sizes.quiet = True, "bucket", self._look_after
        sizes.run = code.run
        return True

    @property
    def _look_after(self) -> int:
        """Calls of a key after which it is timed, to say when it should have code of its own."""
        return self.bucket_policy.exact_calls // 50

    def _count(self, key: Key, sizes: _Sizes, args: Sequence[Any]) -> Any:
        bucket = sizes.bucket if isinstance(sizes, _BucketSizes) else None
        if not isinstance(sizes, _BucketSizes) or bucket is None:
            return super()._count(key, sizes, args)
        state = bucket.state
        if state == "ready":
            with self._lock:
                attached = sizes.bucket is bucket and sizes.run is None and self._attach(key, sizes, bucket)
            run = sizes.run
            if run is None or not attached:
                return self._general(*args) if run is None else run(*args)
            sizes.recent += 1
            return run(*args)
        if state == "tried":
            return self._take_turns(key, sizes, bucket, args)
        if state == "left":
            sizes.bucket = None
            return super()._count(key, sizes, args)
        if state == "making":
            return self._general(*args)
        return self._warm(key, sizes, bucket, args)

    # -- the way of a bucket -------------------------------------------------------------------------------------

    def _warm(self, key: Key, sizes: _BucketSizes, bucket: _Bucket, args: Sequence[Any]) -> Any:
        """A call in a bucket that has no code."""
        bucket.calls += 1
        if len(bucket.keys) < self.bucket_policy.sizes:
            bucket.keys.add(key)
        if len(bucket.clocks) < self.bucket_policy.samples and not self._worker.busy:
            clock = self._clock()
            started = clock.start()
            result = self._general(*args)
            clock.stop(started)
            bucket.clocks.append(clock)
            return result
        if bucket.calls >= bucket.until and self._is_hot_bucket(bucket):
            self._make_code(key, bucket)
        return self._general(*args)

    def _is_hot_bucket(self, bucket: _Bucket) -> bool:
        policy, compiling = self.bucket_policy, self._compile_seconds()
        if bucket.general is None:
            if len(bucket.clocks) < policy.samples:
                return False
            took = [t for clock in bucket.clocks if (t := clock.median()) is not None]
            if len(took) < policy.samples:
                return False
            bucket.general = statistics.median(took)
        earned = compiling / max(bucket.general, 1e-9)
        cheap = self._spent < policy.most_share * compiling
        bucket.until = min(policy.share * earned, policy.calls) if cheap else earned
        return bucket.calls >= bucket.until

    def _make_code(self, key: Key, bucket: _Bucket) -> None:
        chosen = self._plan.choose(key)
        assert chosen is not None
        with self._lock:
            if bucket.state != "heating":
                return
            reason = self._refusal()
            if reason:
                bucket.state = "left"
                self.dropped[reason] += 1
                return
            bucket.state = "making"
        self._worker.submit(self, functools.partial(self._work, chosen, bucket, key, self._make_bucket(chosen, key)))

    def _refusal(self) -> str:
        if self._worker.code_bytes >= self.policy.most_bytes:
            return f"no room for more code ({limits.VARIANT_BYTES})"
        with_code = sum(b.state in ("making", "tried", "ready") for b in self._buckets.values())
        return f"as many buckets have code as may ({limits.BUCKETS})" if with_code >= self.bucket_policy.most else ""

    def _work(self, chosen: Bucket, bucket: _Bucket, key: Key, make: Callable[[], Shared]) -> None:
        began, before = time.perf_counter(), self._loaded()
        try:
            made = make()
            admitted = made.admits(key)
        except Exception as error:
            bucket.state = "left"
            self._note(chosen, f"{NOT_COMPILED}: {type(error).__name__}: {str(error)[:200]}")
            return
        finally:
            took, loaded = time.perf_counter() - began, self._loaded() - before
            bucket.seconds, bucket.code_bytes = bucket.seconds + took, bucket.code_bytes + loaded
            self._spent += took
            self._worker.code_bytes += loaded
        if not admitted:
            bucket.state = "left"
            self._note(chosen, "has code that is not for it")
            return
        bucket.code = made
        bucket.clocks = []
        bucket.state = "tried"

    def _take_turns(self, key: Key, sizes: _BucketSizes, bucket: _Bucket, args: Sequence[Any]) -> Any:
        """The first calls of a bucket's code: it stays if they are faster than the general program's in between."""
        code = bucket.code
        assert code is not None
        if not code.admits(key):
            sizes.bucket = None
            return self._general(*args)
        if bucket.first:
            bucket.first = False
            return code.run(*args)
        if self._worker.busy:
            return code.run(*args)
        sides = bucket.sides.setdefault(key, ([], []))
        of_code = len(sides[1]) < len(sides[0]) if sides[0] or sides[1] else bucket.samples[1] <= bucket.samples[0]
        clock = self._trial_clock()
        started = clock.start()
        result = (code.run if of_code else self._general)(*args)
        clock.stop(started)
        sides[of_code].append(clock)
        bucket.samples[of_code] += 1
        if min(bucket.samples) >= self.bucket_policy.samples:
            self._judge(key, bucket)
        return result

    def _judge(self, key: Key, bucket: _Bucket) -> None:
        ratio = self._ratio(bucket)
        if ratio is None:
            return
        chosen = self._plan.choose(key)
        assert chosen is not None
        with self._lock:
            if bucket.state != "tried":
                return
            other = bucket.code.other if bucket.code is not None else None
            bucket.sides, bucket.samples, bucket.first = {}, [0, 0], True
            is_faster = ratio < self.bucket_policy.slower
            bucket.state = "ready" if is_faster else "left" if other is None else "making"
        if bucket.state == "making" and other is not None:
            self._worker.submit(self, functools.partial(self._work, chosen, bucket, key, other))
        elif bucket.state == "left":
            self._note(chosen, f"is no faster: {ratio:.2f} of the general program's time")
        elif len(bucket.keys) >= self.bucket_policy.sizes:
            self._worker.submit(self, functools.partial(self._make_neighbors, chosen, key))

    def _ratio(self, bucket: _Bucket) -> float | None:
        """Time of the bucket's code, of the general program's: of the same sizes if there are any that both ran."""
        paired, apart = [], ([], [])  # type: tuple[list[float], tuple[list[float], list[float]]]
        for key, sides in list(bucket.sides.items()):
            took = [[t for c in list(clocks) if (t := c.median()) is not None] for clocks in sides]
            if any(len(t) < len(clocks) for t, clocks in zip(took, sides, strict=True)):
                return None  # under way
            if all(took):
                paired += [statistics.median(took[1]) / max(statistics.median(took[0]), 1e-9)] * len(took[1])
            work = self._plan.work(key)
            for times, side in zip(took, apart, strict=True):
                side += [t / work for t in times]
        if len(paired) * 2 >= self.bucket_policy.samples:
            return statistics.median(paired)
        return statistics.median(apart[1]) / max(statistics.median(apart[0]), 1e-30)

    def _make_neighbors(self, chosen: Bucket, key: Key) -> None:
        """Sizes that have not come yet, and are near those that did, find code when they come."""
        for near, instead in self._plan.neighbors(chosen, key):
            other = self._moved(key, instead)
            if other is None or self._plan.choose(other) != near or not self.own(other):
                continue
            if self._spent >= self.bucket_policy.most_share * self._compile_seconds():
                return
            with self._lock:
                bucket = self._buckets.setdefault(near, _Bucket())
            if bucket.state == "heating" and not self._refusal():
                self._make_code(other, bucket)

    def _note(self, chosen: Bucket, reason: str) -> None:
        self.dropped[f"{self._plan.text(chosen)} {reason}"] += 1

    # -- sizes with code of their own ----------------------------------------------------------------------------

    def _try(self, key: Key, sizes: _Sizes, run: Callable[..., Any], args: Sequence[Any]) -> Any:
        if not isinstance(sizes, _BucketSizes) or sizes.state == "tried":
            return super()._try(key, sizes, run, args)
        if sizes.state != "bucket":  # its own code is made
            return run(*args)
        if sizes.general is None and not self._worker.busy:
            clock = sizes.clock
            if clock is None:
                clock = sizes.clock = self._clock()
            started = clock.start()
            result = run(*args)
            clock.stop(started)
            sizes.samples += 1
            if sizes.samples >= self.policy.samples:
                sizes.general = clock.median()
            return result
        if sizes.general is not None:
            self._maybe_alone(key, sizes, args)
        return run(*args)

    def _maybe_alone(self, key: Key, sizes: _BucketSizes, args: Sequence[Any]) -> None:
        """A key that its bucket serves may be called so much that code of its own pays."""
        assert sizes.general is not None
        policy = self.bucket_policy
        sizes.clock = None
        paid = policy.exact_share * self._compile_seconds() / max(sizes.general, 1e-9)
        sizes.quiet = min(paid, policy.exact_calls)
        if sizes.recent < sizes.quiet:
            return
        with self._lock:
            if sizes.state != "bucket":
                return
            sizes.state, sizes.calls, sizes.by_bucket = "counted", sizes.recent, False
        self._promote(key, sizes, args)
        if sizes.state != "compiling":  # there is no room
            more = math.inf if sizes.state == "left" else 1.25 * sizes.recent
            sizes.state, sizes.by_bucket, sizes.quiet = "bucket", True, more
        else:
            sizes.quiet = 0

    def _drop(self, key: Key, sizes: _Sizes, reason: str) -> None:
        super()._drop(key, sizes, reason)
        bucket = sizes.bucket if isinstance(sizes, _BucketSizes) else None
        if bucket is not None and bucket.state == "ready" and self._attach(key, sizes, bucket):  # type: ignore[arg-type]
            sizes.quiet = math.inf  # type: ignore[attr-defined]

    def _own(self) -> list[_Sizes]:
        return [s for s in self._sizes.values() if s.state == "compiling" or _runs_alone(s)]


def _runs_alone(sizes: _Sizes) -> bool:
    """Whether a key has code that is for it alone."""
    by_bucket = isinstance(sizes, _BucketSizes) and sizes.by_bucket
    return sizes.run is not None and sizes.shared is None and not by_bucket and sizes.state in ("tried", "served")
