"""A compilation that holds nobody up.

Owns `background=True`: a call that no program serves runs eagerly, and is counted, while a process of its own captures
and compiles; what that made is loaded as other ranks' programs are. The process is a fork, so it has the callable and
the arguments as they are, and nothing that capturing does to a process is seen in this one. What cannot be made there
is compiled here, when it is next called.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import glob
import multiprocessing
import multiprocessing.connection
import os
import pickle
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from anyshape._torch import compiling
from anyshape.ahead.making import Workshop
from anyshape.ahead.serving import MOST_KEYS, Dispatcher
from anyshape.ahead.stored import Stored
from anyshape.door import Door
from anyshape.engine import NOT_COMPILED, Engine
from anyshape.errors import ArtifactError, FallbackWarning

WAITING = "it is being compiled in the background"
_LONGEST = 1800.0  # seconds that a process may take
_STILL = 60.0  # seconds in which it does nothing at all, after which it is taken for stuck
_NICENESS = 19  # calls that are served go first


class Background:
    """The programs of one callable that are made by processes of their own."""

    def __init__(
        self, live: Any, engine: Engine, *, door: Door | None, mode: str | None, options: dict[str, Any] | None
    ) -> None:
        self._live, self._engine = live, engine
        self._policy = "compile" if door is None else door.declaration.on_new_behavior
        self._workshop = functools.partial(Workshop, live, door=door, mode=mode, options=options)
        self._dispatcher = Dispatcher(live)
        self._here = ""  # why this callable is compiled by this process
        self._said = False
        self._failed: dict[Any, str] = {}  # calls that are, and why
        self._lock = threading.Lock()
        self._idle = threading.Event()
        self._idle.set()
        engine.waits = self.wait

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, taken only for what cannot be made elsewhere."""

        @functools.wraps(call, updated=())
        def served(*args: Any, **kwargs: Any) -> Any:
            run = self._dispatcher.find(args, kwargs)
            if run is not None:
                return run(*args, **kwargs)
            key = None if torch.compiler.is_compiling() else self._dispatcher.key(args, kwargs)
            if self._dispatcher.programs and self._policy != "compile" and not self._engine.warming:
                return self._outside(args, kwargs)
            if key is None or not self._is_made_elsewhere(key, args, kwargs):
                self._say_why_here()
                return call(*args, **kwargs)
            if self._engine.warming and self.wait(_LONGEST):  # whoever warms up wants the program, not the answer
                return served(*args, **kwargs)
            self._engine.count_eager(WAITING)
            try:
                return self._live(*args, **kwargs)
            except Exception:
                self._fail(key, "eager raises")
                raise

        return served

    def _outside(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A call that none of the programs serves, where `on_new_behavior` says that no other is made."""
        if self._policy == "error":
            name = str(getattr(self._live, "__qualname__", type(self._live).__name__))
            raise self._dispatcher.new_behaviour(args, kwargs, name)
        self._engine.count_eager(NOT_COMPILED)
        return self._live(*args, **kwargs)

    def wait(self, timeout: float | None = None) -> bool:
        """Until no process is at work."""
        return self._idle.wait(timeout)

    def _is_made_elsewhere(self, key: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether a process makes what serves a call, or will; one is at work at a time."""
        with self._lock:
            if self._here or key in self._failed:
                return False
            if not self._idle.is_set():
                return True
            self._here = _why_no_fork()
            if self._here:
                return False
            self._idle.clear()
        try:
            self._start(key, args, kwargs)
        except BaseException:
            self._idle.set()
            raise
        return True

    def _start(self, key: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        receiver, sender = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("fork").Process(
            target=self._make, args=(sender, args, kwargs), name="anyshape-background"
        )
        with compiling.none_under_way(wait=self._engine.warming > 0) as alone, warnings.catch_warnings():
            if not alone:  # another thread compiles: what it holds would be held in the fork for ever
                self._idle.set()
                return
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of others: the fork takes none of their locks
            process.start()
        sender.close()
        _RUNNING.add(process)
        threading.Thread(
            target=self._take_over, args=(process, receiver, key), name="anyshape-background", daemon=True
        ).start()

    # -- in the process ------------------------------------------------------------------------------------------

    def _make(self, sender: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):
            os.nice(_NICENESS)
        try:
            compiling.in_a_fork()
            made: tuple[str, Any] = "made", [s.members("programs/0") for s in self._workshop().make(args, kwargs)]
        except ArtifactError as error:
            made = "refused", error.what
        except BaseException as error:
            made = "failed", f"{type(error).__name__}: {error}"
        sender.send_bytes(pickle.dumps(made))

    # -- in this one ---------------------------------------------------------------------------------------------

    def _take_over(self, process: Any, receiver: Any, key: Any) -> None:
        try:
            kind, made = _outcome(process, receiver)
            if kind == "made":
                for members in made:
                    self._dispatcher.add(Stored.read(members, "programs/0"), at_once=True)
                self._engine.loaded = self._dispatcher.programs
            elif kind == "refused" and key not in self._failed:
                self._here = made
            else:
                self._fail(key, made)
        except Exception as error:  # cut off, or what was made cannot be loaded: this process makes its own
            self._fail(key, f"{type(error).__name__}: {error}")
        finally:
            if process.is_alive():
                process.kill()
            process.join()
            _RUNNING.discard(process)
            self._idle.set()

    def _fail(self, key: Any, reason: str) -> None:
        if len(self._failed) >= MOST_KEYS:
            self._failed.clear()
        self._failed[key] = reason

    def _say_why_here(self) -> None:
        if self._here and not self._said:
            self._said = True
            warnings.warn(f"compiled when it is called, not in the background: {self._here}", FallbackWarning, 4)


def _outcome(process: Any, receiver: Any) -> tuple[str, Any]:
    """What the process made, or that it did not."""
    until = time.monotonic() + _LONGEST
    seen, since = _activity(process.pid), time.monotonic()
    while time.monotonic() < until:
        ready = multiprocessing.connection.wait([receiver, process.sentinel], _STILL / 10)
        if ready:
            return pickle.loads(receiver.recv_bytes()) if receiver in ready else ("failed", "the process died")
        now = _activity(process.pid)
        if now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > _STILL:
            return "refused", "a fork of this process waits for ever, for a thread that stayed behind"
    return "failed", f"it took more than {_LONGEST:.0f} s"


def _activity(pid: int) -> object:
    """Changes for as long as a process or one that it started does something; where that cannot be seen, it does."""
    parents: dict[int, int] = {}
    spent: dict[int, tuple[str, ...]] = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(path) as file:  # one that ended meanwhile
            fields = file.read().rpartition(")")[2].split()
            of = int(path.split("/")[2])
            parents[of], spent[of] = int(fields[1]), ("running",) if fields[0] in "RD" else tuple(fields[11:15])
    members = {pid}
    while more := {child for child, parent in parents.items() if parent in members} - members:
        members |= more
    seen = {member: spent[member] for member in members if member in spent}
    return seen if seen and ("running",) not in seen.values() else object()


_RUNNING: set[Any] = set()


@atexit.register
def _end() -> None:
    """A process that compiles is of no use to one that ends."""
    for process in list(_RUNNING):
        with contextlib.suppress(Exception):
            process.kill()


def _why_no_fork() -> str:
    if "fork" not in multiprocessing.get_all_start_methods():
        return "this system has no fork"
    if multiprocessing.current_process().daemon:
        return "a daemonic process may start no other"
    if torch.cuda.is_initialized():  # capturing asks it: which attention kernel, for one, is chosen by the device
        return "the driver of a GPU does not outlive a fork"
    return ""
