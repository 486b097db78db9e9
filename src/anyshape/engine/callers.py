"""Callables that share one engine: which of them a call came through, for counts of each.

Owns which of them a call came through, so that each shows the programs that served it and the calls of its own that ran
eagerly. With one callable, which is the rule, there is nothing to tell apart.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Iterable
from typing import Any


class _Here(threading.local):
    """What is known of the call that a thread makes."""

    caller: object | None = None
    broken: tuple[str, int] | None = None  # why it began with a graph break, and how much had been served till then
    seen: bool = False  # whether a part of it has come to the engine or to a program


class Callers:
    """Who calls, by thread."""

    def __init__(self) -> None:
        self.several = False
        self._known: set[object] = set()
        self.here = _Here()
        self._fallbacks: collections.Counter[tuple[Any, str]] = collections.Counter()

    def join(self, programs: Iterable[Any]) -> object:
        """One more callable. What was compiled so far has served those that were there."""
        if self._known:
            self.several = True
            for program in programs:
                program.served |= self._known
        token = object()
        self._known.add(token)
        return token

    def enter(self, token: object) -> Any:
        """A call begins; what is returned is handed to `leave`."""
        before = self.here.caller
        self.here.caller = token
        return before

    def leave(self, before: Any) -> None:
        self.here.caller = before

    def coming_from(self, token: object, call: Callable[..., Any]) -> Callable[..., Any]:
        """A function whose calls are those of one callable."""

        def known(*args: Any, **kwargs: Any) -> Any:
            before = self.enter(token)
            try:
                return call(*args, **kwargs)
            finally:
                self.leave(before)

        return known

    def note(self, program: Any) -> None:
        """A program serves the call at hand."""
        if self.several:
            caller = self.here.caller
            if caller is not None:  # else a call went straight to a program that has served its callable before
                program.served.add(caller)

    def fell_back(self, reason: str) -> None:
        self._fallbacks[self.here.caller, reason] += 1

    def fallbacks(self, token: object | None = None) -> collections.Counter[str]:
        """Eager calls by reason: of one callable, or of all."""
        found: collections.Counter[str] = collections.Counter()
        for (caller, reason), count in list(self._fallbacks.items()):
            if token is None or not self.several or caller in (token, None):
                found[reason] += count
        return found

    def own(self, programs: Iterable[Any], token: object | None = None) -> list[Any]:
        """Of these programs, those that have served a callable: the one given, or the one that calls now."""
        caller = self.here.caller if token is None else token
        return [p for p in programs if not self.several or caller is None or caller in p.served]
