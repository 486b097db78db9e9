"""A compiled program in this process: its code, admission and variants, its counts, its public view.

Owns its counts, what it was put together from, and the frozen `Program` that people are shown. When one is made, and
which calls it serves, is for others to say.
"""

from __future__ import annotations

import dataclasses
import itertools
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sympy

from anyshape._torch.compile import exact_sizes
from anyshape._torch.repairs.functionalization import output_aliases
from anyshape._torch.runtime import eager_errors
from anyshape.admission import merging
from anyshape.admission.admission import Admission
from anyshape.assumptions.answers import Answer
from anyshape.assumptions.recording import Recording
from anyshape.assumptions.wording import describe_source
from anyshape.programs import Merge, OutCall, Predicate, Program, Variant
from anyshape.variants.hot_sizes import HotSizes


@dataclasses.dataclass(frozen=True)
class Made:
    """What a program was put together from, for those who save it."""

    text: str  # the captured graph
    general: Callable[..., Any]
    master: exact_sizes.Master | None  # what variants are made from
    restore: output_aliases.Restorer | None
    raises: eager_errors.Raises | None
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
        self.hot_sizes: HotSizes | None = None
        self.merges: list[Merge] = []
        self.has_own: Callable[[Any], bool] = lambda key: True  # whether sizes answer all predicates as the capture did
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
            predicates=tuple(self.predicate(a) for a in self.recording.predicates.values()),
            requirements=tuple(self.recording.text(a.fact) for a in self.recording.requirements.values()),
            classes=self.admission.classes,
            variants=self._variants(),
            calls=self.calls,
            capture_seconds=self.capture_seconds,
            compile_seconds=self.compile_seconds,
            verify_seconds=self.admission.verify_seconds,
            graph_breaks=tuple(self.recording.graph_breaks),
            out_calls=tuple(self._out_calls()),
            merges=tuple(self.merges),
            dropped=tuple(self.hot_sizes.dropped) if self.hot_sizes is not None else (),
            conditions=self.apart,
            assertions=tuple(self.recording.text(fact) for fact in self.recording.oblivious.assertions),
            verifications=self.admission.verifications,
            untold=self.admission.untold,
        )

    def join(self, newer: LiveProgram, where: Sequence[Sequence[sympy.Basic]]) -> None:
        """The sizes that `newer` was captured for are served from here on, and `newer` is not needed.

        `where` has lists of facts; each is enough.
        """
        assert self.admission is not None
        for predicate, facts in itertools.product(self.recording.forgotten, where):
            self.admission.join(predicate, facts)
        own, here = self.recording, merging.sizes_of(self.recording, newer.recording, newer.recording.actuals)
        known = {own.text(fact) for fact in own.predicates}
        others = (newer.predicate(a) for a in newer.recording.predicates.values())
        instead = (self.predicate(a) for a in own.predicates.values() if not a.holds(here))
        merge = Merge(tuple(p for p in others if p.text not in known), tuple(instead))
        if merge not in self.merges:
            self.merges.append(merge)
        if (
            self.hot_sizes is not None
        ):  # a variant is made from the captured graph, which was not looked at for these sizes
            self.hot_sizes.own = self.has_own

    def _variants(self) -> tuple[Variant, ...]:
        hot = self.hot_sizes.variants if self.hot_sizes is not None else ()
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

    def predicate(self, answer: Answer) -> Predicate:
        file, _, line = answer.where.rpartition(":")
        return Predicate(self.recording.text(answer.fact), answer.asked_by, file, int(line) if line.isdigit() else 0)
