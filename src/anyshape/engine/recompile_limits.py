"""Recompile limits for reasons other than sizes: counters, growing lists, strings.

Owns how many programs a counter, a growing list or a string may make of one frame: torch's own `recompile_limit`,
counted for each reason on its own. What the reasons are is read from guards by the seams.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Callable, Iterable
from typing import Any

LIMIT = "recompile_limit"


class RecompileLimits:
    """The differences other than sizes between the programs of one callable."""

    def __init__(self, given: int | None, limit: Callable[[str], int], *, static: bool) -> None:
        self._given, self._limit = given, limit
        self._static = static  # sizes are counted like anything else
        self._floats: collections.defaultdict[types.CodeType, set[str]] = collections.defaultdict(set)
        self.apart: tuple[str, ...] = ()  # what the frame looked at last has that other programs have not

    def floats(self, code: types.CodeType) -> frozenset[str]:
        """Floats of modules that have changed: they are inputs of the next program."""
        return frozenset(self._floats[code])

    def reached(self, code: types.CodeType, differences: Iterable[tuple[Any, Any]]) -> str:
        """Note what keeps the programs of a frame from serving it; why no other one is made, if that is so."""
        values: dict[tuple[str, str], dict[str, None]] = collections.defaultdict(dict)
        ours: dict[str, None] = {}
        for program, difference in differences:
            if difference.of_a_size and not self._static:
                continue  # a behavior of the program, of which there may be any number
            program.apart = tuple(dict.fromkeys((*program.apart, difference.theirs)))
            values[difference.about].setdefault(difference.theirs)
            ours.setdefault(difference.ours)
            if difference.of_a_float:
                self._floats[code].add(difference.source)
        self.apart = tuple(ours)
        for (_, kind), texts in values.items():
            most = self._limit(kind) if self._given is None else self._given
            if len(texts) >= most:
                known = list(texts)[::-1]  # torch keeps the one used last in front
                shown = "; ".join([*known[:2], "...", known[-1]] if len(known) > 3 else known)
                return f"{LIMIT} ({most}) is reached by programs that differ in this: {shown}"
        return ""
