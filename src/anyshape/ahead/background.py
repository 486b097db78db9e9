"""`background=True`: capturing and compiling in another process while calls run eagerly.

Owns `background=True`: a call that no program serves runs eagerly, and is counted, while a process of its own captures
and compiles; what that made is loaded as other ranks' programs are, and nothing that capturing does to a process is
seen in this one. What cannot be made there is compiled here, when it is next called.
"""

from __future__ import annotations

import functools
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from anyshape._torch.compile import compile_scope
from anyshape.ahead import helpers, shipping
from anyshape.ahead.loaded_programs import Dispatcher
from anyshape.ahead.stored import Stored
from anyshape.declaration.entry_check import EntryCheck
from anyshape.engine.engine import NOT_COMPILED, Engine
from anyshape.errors import FallbackWarning
from anyshape.foundation import limits

WAITING = "it is being compiled in the background"


class Background:
    """The programs of one callable that are made by processes of their own."""

    def __init__(
        self,
        live: Any,
        engine: Engine,
        *,
        entry_check: EntryCheck | None,
        mode: str | None,
        options: dict[str, Any] | None,
    ) -> None:
        self._live, self._engine = live, engine
        self._policy = "compile" if entry_check is None else entry_check.declaration.on_new_behavior
        self._options = {"entry_check": entry_check, "mode": mode, "options": options}
        self._dispatcher = Dispatcher(live)
        self._here = ""  # why this callable is compiled by this process
        self._said = False
        self._starved = False  # whether calls leave a process no time, so that it needs a share of its own
        self._failed: dict[Any, str] = {}  # calls that are, and why
        self._begin()
        engine.waits = self.wait
        _ALL.add(self)

    def _begin(self) -> None:
        """Nothing is under way; nor is it in a process that was forked, whose threads stayed behind."""
        self._lock = threading.Lock()
        self._idle = threading.Event()
        self._idle.set()

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
            # Whoever warms up wants the program, not the answer.
            if self._engine.warming and self.wait(helpers.LONGEST):
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

    def _is_made_elsewhere(self, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a process makes what serves a call, or will; one is at work at a time."""
        with self._lock:
            if self._here or key in self._failed:
                return False
            if not self._idle.is_set():
                return True
            self._idle.clear()
        try:
            return self._start(key, args, kwargs)
        except BaseException:
            self._idle.set()
            raise

    def _start(self, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """False where no process can have the callable and the call."""
        helper = None
        try:
            helper = self._helper((self._live, self._options, args, kwargs))
        except shipping.Unshippable as error:
            self._here = f"{helpers.why_no_fork()}, and a process that is started anew cannot have it: {error}"
        except OSError as error:
            self._here = f"no process could be started: {error}"
        if helper is None:
            self._idle.set()
            return not self._here
        helpers.RUNNING.add(helper)
        threading.Thread(target=self._take_over, args=(helper, key), name="anyshape-background", daemon=True).start()
        return True

    def _helper(self, job: helpers.Job) -> helpers.Helper | None:
        """The process, or None while there can be none."""
        niceness = helpers.SHARE if self._starved else helpers.NICENESS
        if helpers.why_no_fork():
            return helpers.Started(job, niceness)
        with compile_scope.none_under_way(wait=self._engine.warming > 0) as alone:
            # While another thread compiles, what it holds would be held in the fork for ever.
            return helpers.Forked(job, niceness) if alone else None

    def _take_over(self, helper: helpers.Helper, key: Any) -> None:
        try:
            kind, made = helpers.outcome(helper)
            if kind == "made":
                for members in made:
                    self._dispatcher.add(Stored.read(members, "programs/0"), at_once=True)
                self._engine.loaded = self._dispatcher.programs
            elif kind == "starved":
                self._starved = True  # the next call starts one that is not
            elif kind == "refused" and key not in self._failed:
                self._here = made
            else:
                self._fail(key, made)
        except Exception as error:  # what was made cannot be loaded: this process makes its own
            self._fail(key, f"{type(error).__name__}: {error}")
        finally:
            self._idle.set()

    def _fail(self, key: Any, reason: str) -> None:
        if len(self._failed) >= limits.keys():
            self._failed.clear()
        self._failed[key] = reason

    def _say_why_here(self) -> None:
        if self._here and not self._said:
            self._said = True
            warnings.warn(f"compiled when it is called, not in the background: {self._here}", FallbackWarning, 4)


_ALL: weakref.WeakSet[Background] = weakref.WeakSet()


def _after_fork() -> None:
    for background in list(_ALL):
        background._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
