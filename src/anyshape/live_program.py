"""A compiled program while it lives.

Owns its counts, what it was put together from, and the frozen `Program` that people are shown. When one is made, and
which calls it serves, is for others to say.
"""

from __future__ import annotations

import dataclasses
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from anyshape._torch import aliases, raised, specialise
from anyshape.answers import Answer
from anyshape.dispatch import Admission
from anyshape.programs import OutCall, Predicate, Program, Variant
from anyshape.recording import Recording
from anyshape.tiers import Tiers
from anyshape.wording import describe_source


@dataclasses.dataclass(frozen=True)
class Made:
    """What a program was put together from, for those who save it."""

    text: str  # the captured graph
    general: Callable[..., Any]
    master: specialise.Master | None  # what variants are made from
    restore: aliases.Restorer | None
    raises: raised.Raises | None
    numbers: tuple[Any, ...]  # what assertions are checked on


class LiveProgram:
    """A compiled program and its counts."""

    def __init__(
        self, recording: Recording, site: tuple[str, str, int], capture_seconds: float, *, has_graph: bool
    ) -> None:
        self.recording = recording
        self.has_graph = has_graph
        self.writes_directly = False  # whether its backend can hand a buffer to the kernel
        self.site = site
        self.admission: Admission | None = None
        self.calls = 0
        self.capture_seconds = capture_seconds
        self.compile_seconds = 0.0
        self.code: weakref.ref[types.CodeType] | None = None
        self.origin: types.CodeType | None = None  # what it was captured from
        self.guards = ""  # what is guarded besides sizes
        self.apart: tuple[str, ...] = ()  # what tells it from the others, besides sizes
        self.served: set[object] = set()  # which callables, where several share the program
        self.retired = False  # another one serves all that it served
        self.tiers: Tiers | None = None
        self.made: Made | None = None  # only where programs are saved
        self.contiguous: Variant | None = None
        self.contiguous_calls = 0

    def view(self) -> Program:
        assert self.admission is not None
        name, file, line = self.site
        return Program(
            name=name,
            file=file,
            line=line,
            predicates=tuple(self._predicate(a) for a in self.recording.predicates.values()),
            requirements=tuple(self.recording.text(a.fact) for a in self.recording.requirements.values()),
            classes=self.admission.classes,
            variants=self._variants(),
            calls=self.calls,
            capture_seconds=self.capture_seconds,
            compile_seconds=self.compile_seconds,
            verify_seconds=self.admission.verify_seconds,
            graph_breaks=tuple(self.recording.graph_breaks),
            out_calls=tuple(self._out_calls()),
            dropped=tuple(self.tiers.dropped) if self.tiers is not None else (),
            conditions=self.apart,
            assertions=tuple(self.recording.text(fact) for fact in self.recording.oblivious.assertions),
            verifications=self.admission.verifications,
            untold=self.admission.untold,
        )

    def _variants(self) -> tuple[Variant, ...]:
        hot = self.tiers.variants if self.tiers is not None else ()
        if self.contiguous is None:
            return hot
        return (dataclasses.replace(self.contiguous, calls=self.contiguous_calls), *hot)

    def _out_calls(self) -> Iterator[OutCall]:
        for op, source, where in self.recording.out_calls:
            file, _, line = where.rpartition(":")
            if not self.writes_directly:
                reason: str | None = "the backend makes the result and copies it"
            elif not source:
                reason = None  # a buffer of the graph's own: there is nothing to copy to
            else:
                reason = self.recording.copied.get(source, "the buffer is a view, or one of several at the same place")
            yield OutCall(op, describe_source(source), file, int(line), reason is None, reason or "")

    def _predicate(self, answer: Answer) -> Predicate:
        file, _, line = answer.where.rpartition(":")
        return Predicate(self.recording.text(answer.fact), answer.asked_by, file, int(line) if line.isdigit() else 0)
