"""Calls that run eagerly after the recompile limit, counted.

Owns their count. After the recompile limit torch runs such calls without a word, in C; what can be counted is how often
the compiled callable is called, and how often one of its programs serves the call. The rest ran eagerly.
"""

from __future__ import annotations

import dataclasses
import os
import types
from collections.abc import Iterator, Mapping
from typing import Any

from anyshape._torch.observe import descriptions
from anyshape.doctor.events import EagerCalls


@dataclasses.dataclass
class _Count:
    """One frame that is not compiled any more."""

    about: Mapping[str, Any]
    code: types.CodeType
    calls: int
    served: int = 0
    said: int = 0


class Limited:
    """The frames that are not compiled again. Where one is only called from others, its later calls are not seen."""

    def __init__(self) -> None:
        self._frames: dict[str, _Count] = {}

    def __bool__(self) -> bool:
        return bool(self._frames)

    def add(self, about: Mapping[str, Any], code: types.CodeType, *, raised: bool) -> None:
        """A frame was refused, and the call that found out ran eagerly. Where it raised, so do those that come."""
        if not raised:
            self._frames.setdefault(_frame(about["id"]), _Count(about, code, 1))

    def called(self, frame: types.FrameType) -> None:
        """A call of a compiled callable: `frame` is torch's, around it."""
        function = descriptions.compiled_in(frame)
        if function is None:
            return
        code = descriptions.code_of(function)
        for count in self._frames.values():
            if count.code is code:
                count.calls += 1

    def served(self, compile_id: str, calls: int) -> None:
        """Calls that a program served after all."""
        count = self._frames.get(_frame(compile_id))
        if count is not None:
            count.served += calls

    def events(self, now: float) -> Iterator[EagerCalls]:
        """What has not been said yet."""
        for count in self._frames.values():
            new = count.calls - count.served - count.said
            if new > 0:
                count.said += new
                a = count.about
                yield EagerCalls(a["id"], a["qualname"], a["file"], a["line"], new, now, os.getpid())

    def clear(self) -> None:
        self._frames.clear()


def _frame(compile_id: str) -> str:
    """`1/0` is the first compilation of frame 1."""
    return compile_id.partition("/")[0]
