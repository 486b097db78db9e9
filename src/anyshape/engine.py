"""The programs of one compiled callable.

Owns what happens when a call arrives that no program serves: how it is captured, when a capture is given up, and
which calls run eagerly. Knows recordings, admissions and the seams; the callable that people hold is `compiler`'s.
"""

from __future__ import annotations

import collections
import functools
import time
import types
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from anyshape import ops
from anyshape._torch import afterwards, aliases, capture, memory, raised
from anyshape.dispatch import Admission, holds
from anyshape.errors import FallbackWarning
from anyshape.programs import OutCall, Predicate, Program
from anyshape.recording import STAND_INS, Answer, InputRecord, Recording, describe_source

# Called with each program when it has been compiled: for tests and the doctor.
observers: list[Callable[[Program], None]] = []


class RunEagerly(BaseException):
    """A call has to run as it is, from its beginning. Not an Exception, so that no frame on the way keeps it."""

    def __init__(self, reason: str, *, expected: bool) -> None:
        super().__init__(reason)
        self.reason, self.expected = reason, expected

    def say(self) -> None:
        """Eager had a result where no program could be made: that is worth a word."""
        if not self.expected:
            warnings.warn(f"a call ran eagerly: {self.reason}", FallbackWarning, stacklevel=3)


class RunAgain(BaseException):
    """Another thread has made the program that this call was waiting to make."""


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
            variants=(),
            calls=self.calls,
            capture_seconds=self.capture_seconds,
            compile_seconds=self.compile_seconds,
            verify_seconds=self.admission.verify_seconds,
            graph_breaks=tuple(self.recording.graph_breaks),
            out_calls=tuple(self._out_calls()),
        )

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


def _attempts() -> list[Callable[[], Recording]]:
    """Ways to capture a call, the most general first."""
    way = functools.partial(Recording, locate=capture.locate, retrace=capture.Retrace)
    return [*(functools.partial(way, stand_ins=s) for s in STAND_INS), functools.partial(way, exact=True)]


class Engine:
    """The programs of one compiled callable."""

    def __init__(self, backend: Any, *, fullgraph: bool, own_backend: bool) -> None:
        self._backend = backend
        self._own_backend = own_backend  # the user's own: its errors are the user's to see
        self._fullgraph = fullgraph
        self._programs: list[LiveProgram] = []
        self.fallbacks: collections.Counter[str] = collections.Counter()
        self._recordings: list[Recording] = []
        self._pending: dict[int, LiveProgram] = {}
        self._eager_calls: dict[Any, tuple[str, bool]] = {}
        self._site = ("?", "?", 0)
        self._began = 0.0
        self._whole = False  # the frame being captured is the one with which a call begins
        self._top: types.CodeType | None = None
        self._name = "?"

    def starts_at(self, code: types.CodeType | None, name: str) -> None:
        """The frame with which a call of the callable begins: nothing has happened before it."""
        self._top, self._name = code, name

    def _codes(self) -> list[types.CodeType]:
        codes = [p.code() for p in self._programs if p.code is not None]
        return [c for c in codes if c is not None]

    @property
    def programs(self) -> list[LiveProgram]:
        """Those whose compiled code is alive: `torch.compiler.reset()` drops it."""
        return [p for p in self._programs if p.code is None or p.code() is not None]

    # -- capture -----------------------------------------------------------------------------------------------

    def capture(self, convert: Callable[[], Any], frame: Any) -> Any:
        """Called by Dynamo, under its lock, for a frame that no program serves."""
        if frame.f_code is self._top and capture.is_served(frame, self._codes()):
            raise RunAgain
        known = capture.call_key(frame)
        code = frame.f_code
        if known in self._eager_calls:
            return self._run_eagerly(code, *self._eager_calls[known])
        self._site = (code.co_name, code.co_filename, code.co_firstlineno)
        if capture.is_torchs_own(code):  # a frame that torch puts around a module of its own
            self._site = (self._name, "", 0)
        outcome: Any = None
        error: BaseException | None = None
        attempts = _attempts()
        while attempts:
            outcome, error = self._attempt(convert, attempts.pop(0), whole=code is self._top)
            if error is None and getattr(outcome, "guarded_code", None) is not None:
                self._publish(outcome.guarded_code.code)
                return outcome
            if any(r.substituted for r in self._recordings):
                continue
            # Without a stand-in the next attempt would be this one again; only the last is different.
            attempts = attempts[-1:] if isinstance(error, capture.Retrace) else []
        if error is None:
            return outcome
        if not isinstance(error, capture.Retrace) and not capture.runs_eagerly(
            error, fullgraph=self._fullgraph, torchs_backend=not self._own_backend
        ):
            raise error
        # A capture that was given up on purpose (a buffer that eager resizes) is eager's business, and no surprise.
        reason, expected = capture.reason(error), isinstance(error, capture.Retrace) and bool(error.args)
        if known is not None:
            self._eager_calls[known] = (reason, expected)
        return self._run_eagerly(code, reason, expected)

    def _run_eagerly(self, code: types.CodeType, reason: str, expected: bool) -> Any:
        """Count it, and leave the call to eager: as a whole where nothing of it has run yet, else this frame of it."""
        self.fallbacks[reason] += 1
        if code is self._top:
            raise RunEagerly(reason, expected=expected)
        return capture.eagerly()

    def _publish(self, code: types.CodeType) -> None:
        programs = [p for p in self._pending.values() if p.admission is not None]
        for program in programs:
            program.code = weakref.ref(code)
        self._programs = [*self.programs, *programs]
        for observer in list(observers):
            for program in programs:
                observer(program.view())

    def _attempt(
        self, convert: Callable[[], Any], new_recording: Callable[[], Recording], *, whole: bool
    ) -> tuple[Any, BaseException | None]:
        self._recordings = []
        pending = self._pending = {}
        self._whole = whole

        def begin() -> Recording:
            recording = new_recording()
            recording.on_finish = functools.partial(self._finish, recording)
            self._recordings.append(recording)
            self._began = time.perf_counter()
            return recording

        def count() -> None:
            for program in pending.values():
                program.calls += not program.has_graph

        try:
            with capture.patches(begin, ops.RULES, whole=whole), afterwards.counted(count):
                return convert(), None
        except (capture.Retrace, Exception) as error:
            return None, error

    def compile_graph(self, graph: Any, inputs: Sequence[Any]) -> Any:
        """The Dynamo backend."""
        recording = capture.current_recording()
        if recording is None:
            return self._backend(graph, inputs)
        memory.mark_visible_sharing(graph, recording)
        recording.apart = memory.written_inputs_apart(graph)
        if not holds(recording, recording.actuals):
            raise capture.Retrace
        began = time.perf_counter()
        program = LiveProgram(recording, self._site, began - self._began, has_graph=True)
        program.writes_directly = capture.is_inductor(self._backend)
        self._pending[id(recording)] = program
        recording.inputs = capture.input_sources(graph)
        recording.phase = "aot"
        restore = aliases.restorer(graph)
        out_of_bounds = raised.out_of_bounds(graph)
        compiled = self._backend(graph, inputs)
        program.compile_seconds = time.perf_counter() - began

        def run(*args: Any) -> Any:
            program.calls += 1
            return compiled(*args)

        if out_of_bounds is not None:
            compiled = out_of_bounds(compiled)
        if restore is not None:
            compiled = restore(compiled)
        return run

    def _finish(self, recording: Recording, inputs: Sequence[InputRecord]) -> str | None:
        """Dynamo asks for the guards: the program is complete."""
        if not holds(recording, recording.actuals):
            raise capture.Retrace
        admission = Admission(recording, inputs)
        program = self._pending.get(id(recording))
        if program is None and self._whole and not recording.graph_breaks:  # there was nothing to compute
            program = LiveProgram(recording, self._site, time.perf_counter() - self._began, has_graph=False)
            self._pending[id(recording)] = program
        if program is not None:
            program.admission = admission
        if not inputs:
            return None
        capture.publish_guard(admission)
        return f"{capture.GUARD_NAME}({admission.guard})"
