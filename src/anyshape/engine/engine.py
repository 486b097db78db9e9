"""The engine of one compiled callable: a call that no program serves is captured, compiled or run eagerly.

Owns what happens when a call arrives that no program serves: how it is captured, when a capture is given up, and
which calls run eagerly. Knows recordings, admissions and the seams; the callable that people hold is `compiler`'s.
"""

from __future__ import annotations

import collections
import functools
import json
import time
import types
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from anyshape import ops
from anyshape._torch.capture import capture_scope, compiled_frames, deferred_calls, failures
from anyshape._torch.compile import bucket_code, code_size, common_sizes, exact_sizes, loose_strides, size_roles
from anyshape._torch.graphs import memory, steps
from anyshape._torch.observe import guard_differences
from anyshape._torch.repairs.dynamo import graph_breaks
from anyshape._torch.repairs.functionalization import mutated_view_copies, output_aliases, unbind_expand_inverse
from anyshape._torch.repairs.inductor import output_strides
from anyshape._torch.repairs.scalars import formatted_numbers
from anyshape._torch.runtime import dynamo_codegen, eager_errors, passed_over
from anyshape._torch.symbolic import python_code
from anyshape.admission import merging, oblivious_assertions
from anyshape.admission.admission import Admission, holds
from anyshape.assumptions.answers import InputRecord
from anyshape.assumptions.oblivious import Refused
from anyshape.assumptions.recording import Recording
from anyshape.declaration.entry_check import EntryCheck
from anyshape.declaration.expression import Clause
from anyshape.engine import refusals
from anyshape.engine.callers import Callers
from anyshape.engine.capture_attempts import attempts
from anyshape.engine.live_program import LiveProgram, Made
from anyshape.engine.recompile_limits import LIMIT, RecompileLimits
from anyshape.errors import FallbackWarning, NotCompilableError
from anyshape.foundation import interrupts
from anyshape.foundation.reruns import RunAgain, RunEagerly
from anyshape.programs import Program, Variant
from anyshape.variants.hot_buckets import HotBuckets
from anyshape.variants.hot_sizes import WORKER, HotSizes

# Called with each program when it has been compiled: for tests and the doctor.
observers: list[Callable[[Program], None]] = []
engines: weakref.WeakSet[Engine] = weakref.WeakSet()  # those that are alive, for who counts what ran eagerly


class Found:
    """Which of some programs computes what a new capture does, and where."""

    def __init__(self, older: Sequence[LiveProgram]) -> None:
        self._older = older
        self.program: LiveProgram | None = None
        self.graph: Any = None  # of the new capture

    def look(self, recording: Recording, graph: Any) -> bool:
        for program in self._older if graph is not None else ():
            known, sizes = program.recording, recording.actuals
            if known.graph_of_calls and merging.joins(known, known.graph_of_calls, recording, graph, sizes) is not None:
                self.program, self.graph = program, graph
                return True
        return False


class LeftOut(Exception):
    """The function's own frame cannot be captured; what it calls can."""


NOT_COMPILED = "a new behaviour, and none is compiled"
UNSUITED = "the program insists on something that does not hold of the data"
UNCHECKED = "a check of torch's own fails in the program"
NOTHING_COMPILED = "no part of the call is compiled"
MOST_TRIES = 3  # to capture a frame that could not be: mostly it is its code, and not the sizes


class Captured(BaseException):
    """A program that is only made, and saved, is there. Not an Exception, so that no frame on the way keeps it."""


class Engine:
    """The programs of one compiled callable."""

    def __init__(
        self,
        backend: Any,
        *,
        fullgraph: bool,
        own_backend: bool,
        entry_check: EntryCheck | None = None,
        on_branch: str = "error",
        specialize: tuple[Clause, ...] | str = "hot",
        saves: bool = False,
        static: bool = False,
        recompile_limit: int | None = None,
    ) -> None:
        self._static = static  # every size is a program of its own
        self._hooked = False  # whether hooks have run before the frame at hand
        self._limits = RecompileLimits(recompile_limit, guard_differences.limit, static=static)
        self._warned: set[str] = set()
        self._saves = saves  # programs are made, with what they are made of, and not run
        self._specialize = specialize
        self._backend = backend
        self.entry_check = entry_check
        self.warming = 0  # while it is above 0, new behaviors are compiled whatever was declared
        self._breaks = on_branch == "break"
        self._facts = "" if entry_check is None else f"-{json.dumps(entry_check.declaration.json(), sort_keys=True)}"
        self._own_backend = own_backend  # the user's own: its errors are the user's to see
        self._fullgraph = fullgraph
        self._programs: list[LiveProgram] = []
        self.callers = Callers()
        engines.add(self)
        self._recordings: list[Recording] = []
        self._pending: dict[int, LiveProgram] = {}
        self._eager_calls: dict[Any, tuple[str, bool]] = {}
        self._merge: Found | None = None  # for the frame being captured
        self._left_out: list[str] = []  # why the function's own frame was not captured, for each try
        self.loaded: Sequence[Any] = ()  # programs that other processes have made
        self.waits: Callable[[float | None], bool] = lambda timeout: True  # for those that are at it
        self._site = ("?", "?", 0)
        self._began = 0.0
        self._origin: types.CodeType | None = None  # of the frame that is captured
        self._whole = False  # the frame being captured is the one with which a call begins
        self._top: types.CodeType | None = None
        self._frozen: Callable[[], Any] = lambda: None  # the module that does not change
        self._name = "?"

    def starts_at(self, code: types.CodeType | None, name: str, *, frozen: Any = None) -> None:
        """The frame with which a call of the callable begins: nothing has happened before it.

        `frozen` is the module whose method it is, if that does not change.
        """
        self._top, self._name = code, name
        if frozen is not None:
            self._frozen = weakref.ref(frozen)

    @property
    def entrance(self) -> types.CodeType | None:
        return self._top

    def _codes(self) -> list[types.CodeType]:
        codes = [p.code() for p in self._programs if p.code is not None]
        return [c for c in codes if c is not None]

    @property
    def name(self) -> str:
        """Of the callable."""
        return self._name

    @property
    def programs(self) -> list[LiveProgram]:
        """Those whose compiled code is alive: `torch.compiler.reset()` drops it."""
        return [p for p in self._programs if not p.retired and (p.code is None or p.code() is not None)]

    def views(self, caller: object | None = None) -> tuple[Program, ...]:
        """What `f.programs` shows."""
        return tuple(p.view() for p in (*self.callers.own(self.programs, caller), *self.loaded))

    @property
    def fallbacks(self) -> collections.Counter[str]:
        return self.fallbacks_of(None)

    def fallbacks_of(self, caller: object | None) -> collections.Counter[str]:
        """How often a call, or what follows a graph break in it, ran eagerly."""
        found = self.callers.fallbacks(caller)
        for program in self.callers.own(self.programs, caller):
            for text in program.recording.graph_breaks:
                if text.startswith(graph_breaks.REST):
                    found[text] += program.calls
        return found

    # -- capture -----------------------------------------------------------------------------------------------

    def capture(self, convert: Callable[[], Any], frame: Any) -> Any:
        """Called by Dynamo, under its lock, for a frame that no program serves."""
        self.callers.here.seen = True
        interrupts.deliver()
        with interrupts.heeded():
            return self._capture(convert, frame)

    def _capture(self, convert: Callable[[], Any], frame: Any) -> Any:
        hooked = capture_scope.has_hooks_before(frame)  # they have run, and would run again if the call began again
        if frame.f_code is self._top and not hooked and capture_scope.is_served(frame, self._codes()):
            raise RunAgain
        self._hooked = hooked
        known = capture_scope.call_key(frame)
        code = self._origin = frame.f_code
        if known in self._eager_calls:
            return self._run_eagerly(code, *self._eager_calls[known])
        if code is self._top and len(self._left_out) == MOST_TRIES:
            return self._leave_out(self._left_out[-1])
        if (
            self.entry_check is not None
            and self.entry_check.declaration.on_new_behavior != "compile"
            and not self.warming
        ):
            refused = [p for p in self.programs if p.origin is code]
            if refused and self.entry_check.declaration.on_new_behavior == "eager":
                return self._run_eagerly(code, NOT_COMPILED, True)
            if refused:
                raise refusals.new_behaviour(refused)
        reached = self._limit_reached(frame)
        if reached:
            return self._run_eagerly(code, reached, reached in self._warned)
        self._site = (code.co_name, code.co_filename, code.co_firstlineno)
        if capture_scope.is_torchs_own(code):  # a frame that torch puts around a module of its own
            self._site = (self._name, "", 0)
        outcome: Any = None
        error: BaseException | None = None
        top = code is self._top or capture_scope.is_torchs_own(code)
        ways = attempts(self.entry_check, top=top, graph_break=capture_scope.graph_break if self._breaks else None)
        kept: frozenset[str] = frozenset()
        all_ways, older = list(ways), self._older(code)
        while ways:
            way, self._merge = ways.pop(0), Found(older) if older and not hooked else None
            outcome, error = self._attempt(convert, functools.partial(way, kept=kept), whole=code is self._top)
            if isinstance(error, Refused):
                raise error.error
            if error is None and self._merge is not None and self._merge.program is not None:
                if self._merged(self._merge, outcome, frame):
                    raise RunAgain
                ways, older = all_ways, []
                continue
            if error is None and getattr(outcome, "guarded_code", None) is not None:
                self._publish(outcome.guarded_code, frame)
                return outcome
            if any(r.substituted for r in self._recordings):
                blamed = frozenset().union(*(r.blamed for r in self._recordings)) - kept
                if blamed and isinstance(error, failures.Retrace):
                    kept |= blamed  # the others keep their stand-ins
                    ways.insert(0, way)
                continue
            # Without a stand-in the next attempt would be this one again; only the last is different.
            ways = ways[-1:] if isinstance(error, failures.Retrace) or self._was_led_astray() else []
        if error is None and code is self._top:
            return self._leave_out(f"{NOTHING_COMPILED}: {getattr(outcome, 'skip_reason', None) or 'torch skips it'}")
        if error is None:
            return outcome
        if isinstance(error, LeftOut):
            self._left_out.append(str(error))
            return self._leave_out(str(error))
        branch = failures.data_branch(error) if self._fullgraph else None
        if branch is not None:
            raise refusals.data_branch(*branch) from error
        if not isinstance(error, failures.Retrace) and not failures.runs_eagerly(
            error, fullgraph=self._fullgraph, torchs_backend=not self._own_backend
        ):
            raise error
        # A capture that was given up on purpose (a buffer that eager resizes) is eager's business, and no surprise.
        reason, expected = failures.reason(error), isinstance(error, failures.Retrace) and bool(error.args)
        if known is not None:
            self._eager_calls[known] = (reason, expected)
        return self._run_eagerly(code, reason, expected)

    def _limit_reached(self, frame: Any) -> str:
        """Why no program is made of a frame: there are as many as may be that differ from it in one thing."""
        code = frame.f_code
        known = [p for p in self.callers.own(self.programs) if p.origin is code]
        programs = {id(p.code()): p for p in known if p.code is not None}
        reached = self._limits.reached(code, guard_differences.found(code, frame.f_locals, programs))
        if reached and (self._fullgraph or guard_differences.fails_at_the_limit()):
            raise guard_differences.limit_error(reached)
        return reached

    def _older(self, code: types.CodeType) -> list[LiveProgram]:
        """Programs that this call may turn out to be one of."""
        return [p for p in self._beside(code) if p.recording.forgotten]

    def _beside(self, code: types.CodeType | None) -> list[LiveProgram]:
        """Programs that may be merged with one of this frame: nothing of a call has run before it."""
        if code is not self._top or self._saves:
            return []
        return [p for p in self.programs if p.origin is code]

    def _merged(self, found: Found, outcome: Any, frame: Any) -> bool:
        """Whether the call is the program's that computes the same, the frame around the graph being the same too."""
        program, made = found.program, getattr(outcome, "guarded_code", None)
        mine = [p for p in self._pending.values() if p.admission is not None]
        code = program.code() if program is not None and program.code is not None else None
        if program is None or program.admission is None or made is None or code is None or len(mine) != 1:
            return False
        newer = mine[0]
        assert newer.admission is not None
        around = compiled_frames.besides_the_graph(made.code)
        if around is None or around != compiled_frames.besides_the_graph(code):
            return False
        where = self._where_both_hold(program, newer.recording, newer.admission, found.graph)
        if not where:
            return False
        text = capture_scope.guard_text(made.guard_manager, newer.admission.inputs)
        missing = compiled_frames.guards(text) - compiled_frames.guards(program.guards)
        if not compiled_frames.take_on(frame.f_code, code, sorted(missing), made.guard_manager, frame):
            return False
        program.join(newer, where)
        return capture_scope.is_served(frame, [code])  # something else may differ than sizes

    def _where_both_hold(self, program: LiveProgram, newer: Recording, made: Admission, graph: Any) -> list[list[Any]]:
        """Where both do the same, and both hold: at the sizes of the call, or nowhere that is of use.

        A capture with stand-ins also holds for them: the next batch of such a length need not be captured again.
        """
        here = self._around(program, newer, made, graph, newer.actuals)
        if here is None or newer.hints == newer.actuals:
            return [] if here is None else [here]
        wider = self._around(program, newer, made, graph, newer.hints)
        return [here] if wider is None or wider == here else [here, wider]

    def _around(
        self, program: LiveProgram, newer: Recording, made: Admission, graph: Any, sizes: merging.SizesAt
    ) -> list[Any] | None:
        """Facts that hold at these sizes, and where they do both programs do the same."""
        older, serving = program.recording, program.admission
        assert serving is not None and older.graph_of_calls is not None
        found = merging.joins(older, older.graph_of_calls, newer, graph, sizes)
        otherwise = made.follow_otherwise(sizes) if found is not None else None
        verified = serving.follow_all(merging.sizes_of(older, newer, sizes)) if otherwise is not None else None
        if found is None or otherwise is None or verified is None:
            return None
        more = merging.renamed(older, newer, otherwise)
        facts = None if more is None else merging.narrowed(found, [*more, *verified])
        return facts if facts is not None and _are_told_by_keys(facts, serving) else None

    def _was_led_astray(self) -> bool:
        """Whether AOTAutograd was told what is not true for the sizes at hand, and failed perhaps for that."""
        return any(
            r.aot_contradictory or not all(a.holds(r.hints) for a in r.aot_decisions.values()) for r in self._recordings
        )

    def _leave_out(self, reason: str) -> Any:
        """Count a call whose own frame Dynamo cannot capture; what it calls is compiled."""
        self.callers.fell_back(reason)
        return capture_scope.left_out()

    def _run_eagerly(self, code: types.CodeType, reason: str, expected: bool) -> Any:
        """Count it, and leave the call to eager: as a whole where nothing of it has run yet, else this frame of it."""
        self.callers.fell_back(reason)
        if reason.startswith(LIMIT):
            self._warned.add(reason)
        if code is self._top and not self._hooked:
            raise RunEagerly(reason, expected=expected)
        if reason.startswith(LIMIT) and not expected:
            warnings.warn(f"a part of a call ran eagerly: {reason}", FallbackWarning, stacklevel=3)
        return capture_scope.eagerly()

    def _publish(self, guarded: Any, frame: Any) -> None:
        origin = frame.f_code
        programs = [p for p in self._pending.values() if p.admission is not None]
        guard_differences.count_for_no_other(guarded.guard_manager)
        for program in programs:
            assert program.admission is not None
            program.code = weakref.ref(guarded.code)
            program.origin = origin
            program.apart = self._limits.apart
            self.callers.note(program)
            program.guards = capture_scope.guard_text(guarded.guard_manager, program.admission.inputs)
        if len(programs) == 1:
            self._retire_for(programs[0])
            self._absorb_into(programs[0], guarded.guard_manager, frame)
        self._programs = [*self.programs, *programs]
        for observer in list(observers):
            for program in programs:
                observer(program.view())

    def _retire_for(self, program: LiveProgram) -> None:
        """A program that was made when no size told a broadcast from none is not needed beside the one for both."""
        assert program.admission is not None
        if program.recording.graph_breaks:
            return  # one that does not break may well be the better one
        for other in self.programs:
            if other.origin is not program.origin or other.guards != program.guards or other.admission is None:
                continue
            if program.admission.covers(other.admission):
                other.admission.retire()
                other.retired = True
                program.calls += other.calls

    def _absorb_into(self, newer: LiveProgram, guards: Any, frame: Any) -> None:
        """Programs that were made for single sizes, before there was one that computes the same, are not needed."""
        own, serving = newer.recording, newer.admission
        code = newer.code() if newer.code is not None else None
        if serving is None or code is None or own.graph_of_calls is None or not own.forgotten:
            return
        for other in self._beside(newer.origin):
            graph, made = other.recording.graph_of_calls, other.admission
            instead = other.code() if other.code is not None else None
            if graph is None or made is None or instead is None:
                continue
            where = self._where_both_hold(newer, other.recording, made, graph)
            if not where:
                continue
            around = compiled_frames.besides_the_graph(code)
            if around is None or around != compiled_frames.besides_the_graph(instead):
                continue
            missing = compiled_frames.guards(other.guards) - compiled_frames.guards(newer.guards)
            if not compiled_frames.take_on_of(frame.f_code, instead, sorted(missing), guards, frame):
                continue
            newer.join(other, where)
            made.retire()
            other.retired = True
            newer.calls += other.calls

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
            self.callers.here.seen = True
            for program in pending.values():
                program.calls += not program.has_graph

        try:
            with (
                capture_scope.patches(
                    begin,
                    ops.all_rules(),
                    whole=whole,
                    facts=self._facts,
                    frozen=self._frozen(),
                    static=self._static,
                    floats=self._limits.floats(self._origin) if self._origin is not None else frozenset(),
                ),
                failures.keeping_failures() as kept,
                deferred_calls.counted(count, self._broke_off if whole else None),
            ):
                outcome = convert()
                if whole and kept:
                    failure = kept[-1]
                    return None, failure if failures.was_raised(failure) else LeftOut(failures.reason(failure))
                return outcome, None
        except (failures.Retrace, Refused, Exception) as error:
            interrupts.arrive()
            memory_error = interrupts.memory_error(error)
            if memory_error is not None:
                raise memory_error from None
            return None, error

    def compile_graph(self, graph: Any, inputs: Sequence[Any]) -> Any:
        """The Dynamo backend."""
        recording = capture_scope.current_recording()
        if recording is None:
            return self._noted(self._backend(graph, inputs))
        memory.mark_visible_sharing(graph, recording)
        steps.remember(graph, recording)
        unbind_expand_inverse.select(graph)
        mutated_view_copies.keep(graph)
        eager_errors.keep_assertions(graph)
        formatted_numbers.keep_signs(graph)
        recording.apart = memory.written_inputs(graph, recording.versions)
        recording.differentiates = any(getattr(value, "requires_grad", False) for value in inputs)
        recording.on_gpu = any(getattr(value, "is_cuda", False) for value in inputs)
        if not holds(recording, recording.actuals):
            raise failures.Retrace
        began = time.perf_counter()
        program = LiveProgram(recording, self._site, began - self._began, has_graph=True)
        program.writes_directly = capture_scope.generates_code(self._backend)
        self._pending[id(recording)] = program
        recording.inputs = capture_scope.input_sources(graph)
        recording.phase = "aot"
        restore = output_aliases.restorer(graph)
        if self._merge is not None:
            recording.is_known = functools.partial(self._merge.look, recording)
        numbers = capture_scope.graph_numbers(graph) if recording.oblivious.symbols else []
        raises, insists = eager_errors.by(graph, recording), eager_errors.Insists.of(graph)
        recording.errors = raises, insists is None, restore is None
        master = exact_sizes.Master.of(graph) if self._has_variants(recording) else None
        text = capture_scope.graph_text(graph) if self._saves else ""
        with output_strides.kept(output_strides.of(graph)):
            compiled = self._compile_for_layouts(program, graph, inputs)
        formatted_numbers.write_now(graph)
        if self._saves:
            program.made = Made(text, compiled, master, restore, raises, tuple(numbers))
        compiled = dynamo_codegen.without_wrapper(compiled)
        program.compile_seconds = time.perf_counter() - began
        if master is not None:
            compiled = program.hot_sizes = self._hot_sizes(program, master, compiled)
        callers, here = self.callers, self.callers.here
        check = oblivious_assertions.checker(recording, numbers) if numbers else None

        def run(*args: Any) -> Any:
            program.calls += 1
            here.seen = True
            if callers.several:
                callers.note(program)
            if check is not None:
                check(args)
            try:
                return compiled(*args)
            except (AssertionError, RuntimeError) as error:
                if eager_errors.is_check_of_code(error) and recording.leaves_no_trace:
                    self._leave_to_eager(program, UNCHECKED, error)
                raise

        def make_only(*args: Any) -> Any:
            if program.hot_sizes is not None:
                program.hot_sizes.make_now(args)
            raise Captured

        if self._saves:
            return make_only
        if insists is not None and recording.leaves_no_trace:
            compiled = self._or_eagerly(program, insists, compiled)
        if raises is not None:
            compiled = raises(compiled)
        if restore is not None:
            compiled = restore(compiled)
        return dynamo_codegen.apart_from_dynamo(run)

    def _or_eagerly(
        self, program: LiveProgram, insists: eager_errors.Insists, compiled: Callable[..., Any]
    ) -> Callable[..., Any]:
        """What does not hold of the data is told by eager, by its own error, where nothing has happened yet."""

        def run(*args: Any) -> Any:
            try:
                return compiled(*args)
            except RuntimeError as error:
                if insists.said(error):
                    self._leave_to_eager(program, UNSUITED, error)
                raise

        return run

    def _leave_to_eager(self, program: LiveProgram, reason: str, error: Exception) -> None:
        """Have eager make a call that a program raised in, if nothing has happened before it."""
        if program.origin is self._top:
            self.callers.fell_back(reason)
            raise RunEagerly(f"{reason}: {error}", expected=False) from error

    def _has_variants(self, recording: Recording) -> bool:
        plain = not recording.oblivious.symbols and not recording.loose_strides
        return plain and self._specialize != "never" and capture_scope.generates_code(self._backend)

    def _hot_sizes(self, program: LiveProgram, master: exact_sizes.Master, general: Callable[..., Any]) -> HotSizes:
        recording, places = program.recording, master.places()
        texts = {recording.text(symbol): at for symbol, at in places.items()}
        names = {n: places[s] for s, n in recording.declared.names.items() if s in places}
        own = python_code.function(
            [a.fact for a in recording.predicates.values()],
            {s: f"v[{at}]" for s, at in places.items()},
        )
        program.has_own = lambda key: all(own(key))
        clauses = self._specialize if not isinstance(self._specialize, str) else ()
        known = [c for c in clauses if set(c.names) <= names.keys()]

        def wanted(key: Any) -> bool:
            values = {name: key[at] for name, at in names.items()}
            return any(clause.holds(values) for clause in known)

        words: dict[str, Any] = {
            "make": functools.partial(master.job, self._backend),
            "key": master.key(),
            "text": lambda key: " and ".join(f"{text} == {key[at]}" for text, at in texts.items()),
            "clock": exact_sizes.clock(master.device),
            "compile_seconds": lambda: program.compile_seconds,
            "loaded": code_size.loaded,
        }
        said = {s: recording.text(s) for s in places}
        plan = size_roles.plan(master, said) if self._specialize == "buckets" else None
        if plan is not None:
            return HotBuckets(
                general,
                plan=plan,
                make_bucket=functools.partial(bucket_code.job, master, self._backend, plan, recording.text),
                moved=bucket_code.Moved(master, recording),
                trial_clock=exact_sizes.trial_clock(master.device),
                **words,
            )
        return HotSizes(
            general,
            wanted=wanted if clauses else None,
            make_shared=functools.partial(common_sizes.job, master, self._backend, said),
            **words,
        )

    def serves_alone(self, code: types.CodeType, *, guarded: bool) -> bool:
        """Whether a compiled code is a whole call; unless `guarded`, all it needs of arguments is in their metadata."""
        for program in self.programs:
            if program.code is not None and program.code() is code:
                return not program.recording.graph_breaks and (guarded or not program.recording.apart)
        return False

    def wait(self, timeout: float | None = None) -> bool:
        """Until nothing is being made in the background."""
        began = time.monotonic()
        if not self.waits(timeout):
            return False
        left = None if timeout is None else max(0.0, timeout - (time.monotonic() - began))
        return WORKER.wait([p.hot_sizes for p in self._programs if p.hot_sizes is not None], left)

    def _broke_off(self, reason: str) -> None:
        """A call begins with a graph break."""
        self.callers.here.broken = reason, self._served()

    def _served(self) -> int:
        return sum(p.calls for p in self.programs) + sum(self.callers.fallbacks().values())

    def settle(self) -> None:
        """A call is over: if no program had a part in it after the graph break that it began with, it ran eagerly."""
        (reason, before), self.callers.here.broken = self.callers.here.broken, None
        if self._served() == before:
            self.callers.fell_back(f"{NOTHING_COMPILED}: {reason}")

    def settled(
        self, call: Callable[..., Any], renewed: Callable[[], Callable[..., Any] | None] | None
    ) -> Callable[..., Any]:
        """A function whose calls are counted also where none of their parts is compiled.

        `renewed` gives one that Dynamo does not pass over, where it has passed over this one for good; it is None
        where compiling is disabled.
        """
        here, disabled = self.callers.here, renewed is None

        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal call, renewed
            if torch.compiler.is_dynamo_compiling():
                return call(*args, **kwargs)
            before, here.seen, here.broken = here.seen, False, None
            try:
                result = call(*args, **kwargs)
                if here.broken is not None:
                    self.settle()
                elif not here.seen:
                    self.passed_over(disabled=disabled)
                return result
            finally:
                if not here.seen and renewed is not None and self._marked():
                    call, renewed = renewed() or call, None
                here.seen |= before

        return counted

    def passed_over(self, *, disabled: bool = False) -> None:
        """A call of which Dynamo has shown no frame: it ran eagerly, unless it is a part of what is being traced."""
        if not passed_over.is_traced():
            reason = passed_over.reason(self._top, self._name, disabled=disabled)
            self.callers.fell_back(f"{NOTHING_COMPILED}: {reason}")

    def _marked(self) -> bool:
        return not passed_over.is_traced() and passed_over.is_marked(self._top)

    def _noted(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """A graph that belongs to no program; its calls are compiled all the same."""

        def run(*args: Any) -> Any:
            self.callers.here.seen = True
            return compiled(*args)

        return dynamo_codegen.apart_from_dynamo(run)

    def count_eager(self, reason: str) -> None:
        """A call runs eagerly, and nobody is surprised."""
        self.callers.fell_back(reason)

    def _compile_for_layouts(self, program: LiveProgram, graph: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        """The graph compiled; where strides may be any, once more for contiguous inputs, which are read far faster."""
        recording = program.recording
        if not recording.loose_strides or not capture_scope.generates_code(self._backend) or self._saves:
            return self._backend(graph, inputs)
        plain, loose = loose_strides.contiguous_inputs(graph, inputs, recording)
        if not loose:
            return self._backend(graph, inputs)
        general = self._backend(loose_strides.twin(graph), inputs)
        began = time.perf_counter()
        quick = self._backend(graph, plain)
        program.contiguous = Variant("contiguous inputs", 0, time.perf_counter() - began)
        only = loose[0] if len(loose) == 1 else None

        def run(*args: Any) -> Any:
            if args[only].is_contiguous() if only is not None else all(args[i].is_contiguous() for i in loose):
                program.contiguous_calls += 1
                return quick(*args)
            return general(*args)

        return run

    def _finish(self, recording: Recording, inputs: Sequence[InputRecord]) -> str | None:
        """Dynamo asks for the guards: the program is complete."""
        if not holds(recording, recording.actuals):
            raise failures.Retrace
        if recording.raised is not None:  # for sizes of which nothing is written down
            raise failures.Retrace(f"a call raises {recording.raised}, and the function goes on")
        admission = Admission(recording, inputs)
        admission.admit_captured()
        program = self._pending.get(id(recording))
        if program is None and self._whole and not recording.graph_breaks:  # there was nothing to compute
            program = LiveProgram(recording, self._site, time.perf_counter() - self._began, has_graph=False)
            self._pending[id(recording)] = program
        if program is not None:
            program.admission = admission
        if not inputs or (recording.oblivious.symbols and admission.admits_all):
            return None
        capture_scope.publish_guard(admission)
        return f"{capture_scope.GUARD_NAME}({admission.guard})"


def _are_told_by_keys(facts: Sequence[Any], admission: Admission) -> bool:
    """Whether all that facts speak of is in the key of a call."""
    return all(admission.places.get(s, "").startswith("v[") for fact in facts for s in fact.free_symbols)


def engine_of(f: object, *, asked_by: str, fix: str) -> Engine:
    """The engine of a compiled callable, for functions that take one."""
    engine = getattr(getattr(f, "_compiled_call_impl", None) or f, "_engine", None)
    if not isinstance(engine, Engine):
        what = f"anyshape.{asked_by} takes a function compiled by anyshape"
        raise NotCompilableError(what, value=type(f).__name__, fix=f"f = anyshape.compile(fn); {fix}")
    return engine
