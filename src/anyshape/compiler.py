"""`anyshape.compile`.

Owns the compiled callable: its programs, its counts, and what happens when a call arrives that no program serves.
"""

from __future__ import annotations

import collections
import functools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from anyshape._torch import capture
from anyshape.dispatch import Admission
from anyshape.recording import STAND_INS, InputRecord, Recording


class LiveProgram:
    """A compiled program and its counts."""

    def __init__(self, graph: Any, recording: Recording) -> None:
        self.graph = graph
        self.recording = recording
        self.admission: Admission | None = None
        self.calls = 0
        self.capture_seconds = 0.0
        self.compile_seconds = 0.0


class Engine:
    """The programs of one compiled callable."""

    def __init__(self, backend: Any, *, fullgraph: bool) -> None:
        self._backend = backend
        self._fullgraph = fullgraph
        self.programs: list[LiveProgram] = []
        self.fallbacks: collections.Counter[str] = collections.Counter()
        self._recordings: list[Recording] = []
        self._pending: dict[int, LiveProgram] = {}

    def capture(self, convert: Callable[[], Any], frame: Any) -> Any:
        """Called by Dynamo, under its lock, for a frame that no program serves."""
        outcome: Any = None
        for stand_ins in STAND_INS:
            self._recordings = []
            self._pending = {}

            def new_recording(stand_ins: dict[int, int] = stand_ins) -> Recording:
                recording = Recording(stand_ins=stand_ins, locate=capture.locate)
                recording.on_finish = functools.partial(self._finish, recording)
                self._recordings.append(recording)
                return recording

            error: BaseException | None = None
            try:
                with capture.patches(new_recording):
                    outcome = convert()
            except (capture.Retrace, Exception) as e:
                error = e
            if error is None and getattr(outcome, "guarded_code", None) is not None:
                break
            if not any(r.substituted for r in self._recordings):
                if error is not None:
                    return self._refused(error)
                break
        self.programs.extend(p for p in self._pending.values() if p.admission is not None)
        return outcome

    def _refused(self, error: BaseException) -> Any:
        if not capture.runs_eagerly(error, fullgraph=self._fullgraph):
            raise error
        self.fallbacks[capture.reason(error)] += 1
        return capture.eagerly()

    def compile_graph(self, graph: Any, inputs: Sequence[Any]) -> Any:
        """The Dynamo backend."""
        recording = capture.current_recording()
        if recording is None:
            return self._backend(graph, inputs)
        self._check_actual(recording)
        program = LiveProgram(graph, recording)
        self._pending[id(recording)] = program
        recording.phase = "aot"
        began = time.perf_counter()
        compiled = self._backend(graph, inputs)
        program.compile_seconds = time.perf_counter() - began

        def run(*args: Any) -> Any:
            program.calls += 1
            return compiled(*args)

        return run

    def _check_actual(self, recording: Recording) -> None:
        """A capture made with stand-ins for 0 and 1 is kept only if it holds for the sizes that really came."""
        if recording.substituted and not recording.holds_for_actual():
            raise capture.Retrace

    def _finish(self, recording: Recording, inputs: Sequence[InputRecord]) -> str | None:
        if not inputs and not recording.predicates and not recording.requirements:
            admission = Admission(recording, inputs)
            self._attach(recording, admission)
            return None
        if not recording.holds_for_actual():
            raise capture.Retrace
        admission = Admission(recording, inputs)
        self._attach(recording, admission)
        capture.publish_guard(admission)
        return f"{capture.GUARD_NAME}({admission.guard})"

    def _attach(self, recording: Recording, admission: Admission) -> None:
        program = self._pending.get(id(recording))
        if program is not None:
            program.admission = admission


class CompiledFunction:
    def __init__(self, target: Any, engine: Engine) -> None:
        self._target = target
        self._engine = engine

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._target(*args, **kwargs)

    @property
    def programs(self) -> tuple[Any, ...]:
        return tuple(self._engine.programs)

    @property
    def fallbacks(self) -> dict[str, int]:
        return dict(self._engine.fallbacks)


def compile(fn: Any = None, *, fullgraph: bool = False, backend: Any = "inductor", mode: Any = None, options: Any = None) -> Any:
    engine = Engine(capture.inner_backend(backend, mode, options), fullgraph=fullgraph)
    target = capture.install(fn, engine.compile_graph, fullgraph=fullgraph, capture=engine.capture)
    return CompiledFunction(target, engine)
