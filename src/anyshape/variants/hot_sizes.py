"""Variants for hot sizes: when a size gets static code, how many may have it, what is evicted.

Owns when a program gets one, how many it may have, and whether one stays. The general program serves from the first
call; sizes on which it has spent as long as compiling it took get code of their own, made in the background from the
same captured graph; when as many have it as may, those that follow get code for what they all have in common. A variant
that cannot be made, or is no faster, is dropped, and its reason kept. How code is made from a graph, and what a clock
is, is handed in: nothing here knows torch.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import ctypes
import dataclasses
import functools
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from anyshape.foundation import limits
from anyshape.programs import Variant

Key = tuple[Any, ...]
LONGEST_END = 30.0  # seconds that a process which ends waits for a compiler to stop
NOT_COMPILED = "could not be compiled"  # what is said of a variant that was dropped for it


@dataclasses.dataclass(frozen=True)
class Policy:
    """When a size is hot and what variants may cost."""

    samples: int = 12  # calls that are timed before a variant is thought of, and of the variant before it stays
    share: float = 1.0  # of the time that compiling the program took, spent on a size, makes it hot
    calls: int = 2_000  # so do these many calls, however short
    most: int = dataclasses.field(default_factory=limits.variants)  # sizes of a program that have code of their own
    most_bytes: int = dataclasses.field(default_factory=limits.variant_bytes)  # of code, of all programs together
    most_shared: int = 2  # variants for what hot sizes have in common, made when there are more of them
    most_keys: int = 4_096  # sizes whose calls are counted
    slower: float = 1.0  # a variant that takes this part of the general program's time, or more, is dropped


class Clock(Protocol):
    """Times calls without holding them up."""

    def start(self) -> Any: ...

    def stop(self, started: Any) -> None: ...

    def median(self) -> float | None:
        """Seconds a call, or None while the calls that were timed are under way."""


class Shared(Protocol):
    """Code for all sizes that have something in common."""

    @property
    def run(self) -> Callable[..., Any]: ...

    @property
    def text(self) -> str: ...

    @property
    def admits(self) -> Callable[[Key], bool]:
        """Whether it is for the sizes of a key."""

    @property
    def other(self) -> Callable[[], Shared] | None:
        """Makes code with other kernels for the same sizes, where there is a choice."""


class _Sizes:
    """What is known of the calls with one key."""

    __slots__ = (
        "alone",
        "calls",
        "clock",
        "code_bytes",
        "general",
        "recent",
        "run",
        "samples",
        "seconds",
        "served",
        "shared",
        "state",
        "until",
    )

    def __init__(self, clock: Clock | None) -> None:
        self.state = "timed"  # timed | counted | compiling | tried | served | left
        self.calls = 0
        self.until: float = 0  # calls before it is asked again whether the size is hot
        self.recent = 0  # calls of the variant since variants were last compared
        self.served = 0  # and before
        self.samples = 0  # calls that were timed
        self.clock = clock
        self.general: float | None = None  # seconds a call of the general program
        self.run: Callable[..., Any] | None = None
        self.shared: _SharedCode | None = None  # whose code `run` is, where it is not for these sizes alone
        self.alone = False  # what sizes have in common is of no use to these
        self.seconds = 0.0  # that the variant took to make
        self.code_bytes = 0  # that were loaded for it


class _SharedCode:
    """A shared variant and what it took to make."""

    def __init__(self, code: Shared, seconds: float, code_bytes: int) -> None:
        self.code, self.seconds, self.code_bytes = code, seconds, code_bytes


class HotSizes:
    """A general program and its variants. Called as the program is."""

    def __init__(
        self,
        general: Callable[..., Any],
        *,
        make: Callable[[Sequence[Any]], Callable[[], Callable[..., Any]]],
        key: Callable[[Sequence[Any]], Key],
        text: Callable[[Key], str],
        clock: Callable[[], Clock],
        compile_seconds: Callable[[], float],
        wanted: Callable[[Key], bool] | None = None,
        make_shared: Callable[[Sequence[Key]], Callable[[], Shared] | None] | None = None,
        loaded: Callable[[], int] = lambda: 0,
        policy: Policy | None = None,
        worker: Worker | None = None,
    ) -> None:
        self._general = general
        self._make = make
        self._key = key
        self._text = text
        self._clock = clock
        self._compile_seconds = compile_seconds
        self._wanted = wanted  # sizes that a clause of `specialize` names; None: those that are hot
        self._make_shared = make_shared
        self._loaded = loaded  # bytes of code in this process so far
        self._shared: list[_SharedCode] = []
        self._shared_tried = 0
        self.policy = policy or Policy()
        self._worker = worker or WORKER
        self._sizes: dict[Key, _Sizes] = {}
        self.own: Callable[[Key], bool] = lambda key: True  # whether code may be made for a size
        self._lock = threading.Lock()
        self.dropped: collections.Counter[str] = collections.Counter()

    def __call__(self, *args: Any) -> Any:
        key = self._key(args)
        sizes = self._sizes.get(key)
        if sizes is None:
            sizes = self._new(key)
        run = sizes.run
        if run is not None:
            sizes.recent += 1
            return run(*args) if sizes.state == "served" else self._try(key, sizes, run, args)
        if sizes.state in ("compiling", "left"):
            return self._general(*args)
        return self._count(key, sizes, args)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Those that serve calls."""
        served = [(k, s) for k, s in list(self._sizes.items()) if s.run is not None]
        alone = [(k, s) for k, s in served if s.shared is None]
        own = [Variant(self._text(k), s.served + s.recent, s.seconds, s.code_bytes) for k, s in alone]
        for shared in self._shared:
            calls = sum(s.served + s.recent for _, s in served if s.shared is shared)
            own.append(Variant(shared.code.text, calls, shared.seconds, shared.code_bytes))
        return tuple(own)

    def make_now(self, args: Sequence[Any]) -> None:
        """The variant for these sizes, if a clause names them; made by this thread, and kept."""
        key = self._key(args)
        if self._wanted is None or not self._wanted(key) or key in self._sizes:
            return
        sizes = self._sizes.setdefault(key, _Sizes(None))
        sizes.run, sizes.state = self._make(args)(), "served"

    def made(self) -> list[tuple[Key, str, Callable[..., Any]]]:
        """The variants with their keys, what those mean, and their code."""
        found = [(k, s) for k, s in list(self._sizes.items()) if s.shared is None]
        return [(k, self._text(k), s.run) for k, s in found if s.run is not None]

    # -- the way of a size ---------------------------------------------------------------------------------------

    def _new(self, key: Key) -> _Sizes:
        with self._lock:
            if len(self._sizes) >= self.policy.most_keys:
                self._sizes = {k: s for k, s in self._sizes.items() if s.run is not None or s.state == "compiling"}
            made = self._sizes.setdefault(key, _Sizes(self._clock()))
            if not self.own(key):
                made.state = "left"
            return made

    def _count(self, key: Key, sizes: _Sizes, args: Sequence[Any]) -> Any:
        sizes.calls += 1
        if sizes.state == "counted":
            if sizes.calls >= sizes.until and self._is_hot(key, sizes):
                self._promote(key, sizes, args)
            return self._general(*args)
        clock = sizes.clock
        assert clock is not None
        if self._worker.busy and self._wanted is None:
            return self._general(*args)  # what is compiled in the meantime would be in the time
        started = clock.start()
        result = self._general(*args)
        clock.stop(started)
        sizes.samples += 1
        if sizes.samples >= self.policy.samples or self._wanted is not None:
            sizes.state = "counted"
        return result

    def _is_hot(self, key: Key, sizes: _Sizes) -> bool:
        if self._wanted is not None:
            sizes.until = 0 if self._wanted(key) else math.inf
            return sizes.until == 0
        if sizes.general is None:
            assert sizes.clock is not None
            sizes.general = sizes.clock.median()
            if sizes.general is None:
                return False
            sizes.clock = None
        paid = self.policy.share * self._compile_seconds() / max(sizes.general, 1e-9)
        sizes.until = min(paid, self.policy.calls)
        return sizes.calls >= sizes.until

    def _promote(self, key: Key, sizes: _Sizes, args: Sequence[Any]) -> None:
        with self._lock:
            if sizes.state != "counted":
                return
            shares = not sizes.alone and len(self._own()) >= self.policy.most
            if shares and self._takes_shared(key, sizes):
                return
            if self._worker.code_bytes >= self.policy.most_bytes:
                sizes.state = "left"
                self.dropped[f"no room for more code ({limits.VARIANT_BYTES})"] += 1
                return
            shared = self._shared_job(key) if shares else None
            if shared is None and not self._room_for(sizes):
                sizes.until = 1.25 * sizes.calls
                return
            sizes.state = "compiling"
        if shared is not None:
            self._worker.submit(self, functools.partial(self._share, key, sizes, shared))
            return
        job = self._make(args)  # looks at the inputs now, and keeps none of them

        def work() -> None:
            began, before = time.perf_counter(), self._loaded()
            try:
                run = job()
            except Exception as error:
                self._drop(key, sizes, f"{NOT_COMPILED}: {type(error).__name__}: {str(error)[:200]}")
                return
            sizes.seconds, sizes.code_bytes = time.perf_counter() - began, self._loaded() - before
            self._worker.code_bytes += sizes.code_bytes
            sizes.clock, sizes.samples = self._clock(), 0
            sizes.state = "tried"
            sizes.run = run

        self._worker.submit(self, work)

    def _takes_shared(self, key: Key, sizes: _Sizes) -> bool:
        """Have the sizes served by code that is there for what they have in common with others, if there is any."""
        for shared in self._shared:
            if shared.code.admits(key):
                sizes.clock, sizes.samples = self._clock(), 0
                sizes.shared, sizes.state = shared, "tried"
                sizes.run = shared.code.run
                return True
        return False

    def _shared_job(self, key: Key) -> Callable[[], Shared] | None:
        """What makes code for all that hot sizes have in common; None where that is nothing."""
        if self._make_shared is None or self._shared_tried >= self.policy.most_shared:
            return None
        hot = [k for k, s in self._sizes.items() if s.run is not None and s.shared is None]
        job = self._make_shared([*hot, key])
        self._shared_tried += job is not None
        return job

    def _share(self, key: Key, sizes: _Sizes, job: Callable[[], Shared]) -> None:
        began, before = time.perf_counter(), self._loaded()
        try:
            made = job()
            admitted = made.admits(key)
        except Exception as error:
            self.dropped[f"code for several sizes {NOT_COMPILED}: {type(error).__name__}: {str(error)[:200]}"] += 1
            admitted = False
        code_bytes = self._loaded() - before
        self._worker.code_bytes += code_bytes
        if admitted:
            self._shared = [*self._shared, _SharedCode(made, time.perf_counter() - began, code_bytes)]
        with self._lock:
            sizes.alone = not admitted
            sizes.state = "counted"
            sizes.until = 0
            if admitted:
                self._takes_shared(key, sizes)

    def _own(self) -> list[_Sizes]:
        """Sizes that have code of their own, or are about to."""
        return [s for s in self._sizes.values() if s.shared is None and (s.run is not None or s.state == "compiling")]

    def _room_for(self, sizes: _Sizes) -> bool:
        """Whether there is room for one more variant, made if need be by giving up the one that is called least."""
        kept = self._own()
        if len(kept) < self.policy.most:
            return True
        served = [s for s in kept if s.state == "served"]
        least = min(served, key=lambda s: s.recent, default=None)
        if least is None or sizes.calls < 2 * (least.recent + 1):
            return False
        least.run, least.state, least.clock, least.calls = None, "timed", self._clock(), 0
        least.general, least.until, least.samples = None, 0, 0
        for other in served:
            other.served, other.recent = other.served + other.recent, 0
        self.dropped["called less than others"] += 1
        return True

    def _try(self, key: Key, sizes: _Sizes, run: Callable[..., Any], args: Sequence[Any]) -> Any:
        """The variant's first calls: it stays if they are faster than the general program's were."""
        clock = sizes.clock
        if clock is None or sizes.general is None:
            sizes.state = "served"
            return run(*args)
        if self._worker.busy:
            return run(*args)
        started = clock.start()
        result = run(*args)
        clock.stop(started)
        sizes.samples += 1
        if sizes.samples >= self.policy.samples:
            took = clock.median()
            if took is not None:
                sizes.clock = None
                sizes.state = "served"
                if took < self.policy.slower * sizes.general:
                    return result
                if sizes.shared is not None:  # code of their own may be
                    sizes.run, sizes.shared, sizes.alone, sizes.state, sizes.until = None, None, True, "counted", 0
                else:
                    self._drop(key, sizes, f"is no faster: {took / sizes.general:.2f} of the general program's time")
        return result

    def _drop(self, key: Key, sizes: _Sizes, reason: str) -> None:
        sizes.run, sizes.state = None, "left"
        self.dropped[f"{self._text(key)} {reason}"] += 1


class Worker:
    """One thread, started when there is work, that makes variants; it ends when there is none."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Any, Callable[[], None]]] = queue.SimpleQueue()
        self._lock = threading.Condition()
        self._waiting: collections.Counter[int] = collections.Counter()
        self._thread: threading.Thread | None = None
        self._ended = False
        self.code_bytes = 0  # that were loaded for all that it made

    def submit(self, owner: Any, job: Callable[[], None]) -> None:
        if self._ended:
            return
        with self._lock:
            self._waiting[id(owner)] += 1
            self._jobs.put((owner, job))
            if self._thread is None:
                atexit.unregister(self.end)
                atexit.register(self.end)  # now, so that it comes before the compiler's own ends
                self._thread = threading.Thread(target=self._work, name="anyshape-variants", daemon=True)
                self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether anything is being made."""
        return bool(self._waiting) and not self._ended

    def wait(self, owners: Sequence[Any], timeout: float | None) -> bool:
        """Until nothing of `owners` is under way; False if that took longer than `timeout` seconds."""
        if self._ended:
            return True
        with self._lock:
            return self._lock.wait_for(lambda: not any(self._waiting[id(o)] for o in owners), timeout)

    def end(self) -> None:
        """For a process that ends: a thread that is cut off in the compiler's C++ would abort it."""
        with self._lock:
            thread, self._ended = self._thread, True
            self._waiting.clear()
            while not self._jobs.empty():
                self._jobs.get()
            self._lock.notify_all()
        # Compiling stops at the next step that is Python; what a variant would be good for is over. Some of what runs
        # there takes no notice of an exception (a callback of a weak reference, `except BaseException`), so it is told
        # until it has stopped. From here on nobody needs the lock, which it may stop with.
        until = time.monotonic() + LONGEST_END
        while thread is not None and thread.is_alive() and time.monotonic() < until:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))
            thread.join(0.1)

    def _work(self) -> None:
        while True:
            try:
                owner, job = self._jobs.get(timeout=1.0)
            except queue.Empty:
                with self._lock:
                    if self._jobs.empty():
                        self._thread = None
                        return
                continue
            with contextlib.suppress(Exception):
                job()
            with self._lock:
                self._waiting[id(owner)] -= 1
                if not self._waiting[id(owner)]:
                    del self._waiting[id(owner)]
                self._lock.notify_all()


WORKER = Worker()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=WORKER.__init__)  # type: ignore[misc]  # its thread stays with the parent
