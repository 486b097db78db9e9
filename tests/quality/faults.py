"""Faults put into anyshape on purpose, to see whether the fuzzer finds them.

Each is a context manager that breaks one thing, as a slip in the code would.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import sympy
import torch
import torch.nn.functional as F

from anyshape import compiler, ops
from anyshape._torch.capture import capture_scope, compiled_frames, failures, out_calls
from anyshape._torch.compile import exact_sizes
from anyshape._torch.fake_runs import index_reads, verify
from anyshape._torch.graphs import memory
from anyshape._torch.repairs.fake import slice_bounds
from anyshape._torch.repairs.functionalization import output_aliases
from anyshape._torch.repairs.inductor import index_divisions
from anyshape._torch.runtime import dynamo_codegen, shortcuts
from anyshape._torch.symbolic import shape_env
from anyshape.admission import merging
from anyshape.admission.admission import Admission
from anyshape.admission.local_classes import Kind
from anyshape.assumptions.answers import NodeRecord
from anyshape.assumptions.recording import Recording
from anyshape.engine import capture_attempts, engine
from anyshape.fuzz.oracle import Target
from anyshape.ops import settled

Fault = Callable[[], contextlib.AbstractContextManager[None]]
FAULTS: dict[str, Fault] = {}


OF_NUMBERS: dict[str, Fault] = {}  # those that programs over Python numbers find, with Inductor
UNFOUND: dict[str, str] = {}  # those that the fuzzer does not find, and why


def fault(function: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    FAULTS[function.__name__] = contextlib.contextmanager(function)
    return function


WITH_INDUCTOR = Target(backend="inductor", economy=False)
WITH_VARIANTS = dataclasses.replace(WITH_INDUCTOR, variants=True)
TARGETS: dict[str, Target] = {}  # what the others are tested with, where it is not `Target()`


def fault_with(target: Target) -> Callable[[Callable[[], Iterator[None]]], Callable[[], Iterator[None]]]:
    """A fault that shows in code that Inductor has generated."""

    def register(function: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
        TARGETS[function.__name__] = target
        return fault(function)

    return register


def unfound(why: str) -> Callable[[Callable[[], Iterator[None]]], Callable[[], Iterator[None]]]:
    """A fault that was looked for and not found."""

    def register(function: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
        UNFOUND[function.__name__] = why
        return fault(function)

    return register


@contextlib.contextmanager
def replaced(holder: Any, name: str, value: Any) -> Iterator[None]:
    """A function stands in for one that can be called in the same ways: else its `TypeError` would be the fault."""
    if inspect.isfunction(value):
        assert _takes(value) >= _takes(getattr(holder, name)), f"{name} is called otherwise by now"
    with mock.patch.object(holder, name, value):
        yield


def _takes(function: Callable[..., Any]) -> int:
    """How many parameters it has; any number where it takes whatever comes."""
    found = inspect.signature(function).parameters.values()
    return 99 if any(p.kind is p.VAR_POSITIONAL for p in found) else len(found)


def overlooking(*words: str) -> Any:
    """A verification that does not see differences whose text has one of these words."""
    compare = verify._compare

    def blind(node: Any, run: Any, *, strict: bool = False) -> Any:
        found = compare(node, run, strict=strict)
        return None if found is not None and any(w in str(found) for w in words) else found

    return replaced(verify, "_compare", blind)


# -- recording -------------------------------------------------------------------------------------------------


@unfound("made up for: AOTAutograd asks the same questions again, and its decisions are kept")
def a_decision_is_not_recorded() -> Iterator[None]:
    with replaced(Recording, "_decide", lambda self, expr, outcome: None):
        yield


@fault
def a_predicate_is_not_recorded() -> Iterator[None]:
    with replaced(Recording, "_assume", lambda self, expr, outcome, baked=False: None):
        yield


@fault
def a_requirement_is_not_recorded() -> Iterator[None]:
    require = Recording.require

    def forgetful(self: Recording, expr: Any) -> bool:
        outcome = require(self, expr)
        self.requirements.pop(expr, None)
        return outcome

    with replaced(Recording, "require", forgetful):
        yield


@fault
def a_requirement_that_fails_is_said_to_hold() -> Iterator[None]:
    with replaced(Recording, "require", lambda self, expr: True):
        yield


@unfound("where an answer differs eager mostly acts otherwise too: a program of its own is not one too many")
def decisions_are_predicates() -> Iterator[None]:
    with replaced(Recording, "_decide", lambda self, expr, outcome: self._assume(expr, outcome)):
        yield


@fault
def questions_of_autograd_are_not_recorded() -> Iterator[None]:
    answer = Recording.answer

    def silent(self: Recording, expr: Any, general: Any) -> Any:
        if self.phase != "aot":
            return answer(self, expr, general)
        truth = self.truth(expr)
        return truth if general is None else general

    with replaced(Recording, "answer", silent):
        yield


@unfound("not reached: takes a gradient that has a formula of its own for the sizes of the first call")
def a_way_of_its_own_is_taken_for_all() -> Iterator[None]:
    with replaced(Recording, "_takes_a_way_of_its_own", lambda self, expr, truth: False):
        yield


@fault
def strides_are_those_of_the_first_call() -> Iterator[None]:
    symbolic = shape_env.symbolic_strides

    def baked(sizes: Any, strides: Any, symbols: Any, free_stride: Any) -> Any:
        made = symbolic(sizes, strides, symbols, free_stride)
        return [sympy.Integer(n) if s.is_Symbol else s for s, n in zip(made, strides, strict=True)]

    with replaced(shape_env, "symbolic_strides", baked):
        yield


@unfound("not reached: takes a mask with one hit, and a squeeze of what it gave")
def a_size_born_from_data_is_never_one_for_squeeze() -> Iterator[None]:
    with replaced(Recording, "drops_dims", lambda self: False):
        yield


@unfound("not reached: takes a mask with one hit, and a broadcast of what it gave")
def a_size_born_from_data_is_never_one_for_broadcasts() -> Iterator[None]:
    with replaced(shape_env, "_broadcasts", lambda expr: False):
        yield


@unfound("made up for: with aot_eager torch's kernels see the real sizes, whatever the trace took them for")
def sizes_are_two_or_more() -> Iterator[None]:
    settled = shape_env.FreeShapeEnv.settled

    def specialised(self: Any, expr: Any) -> Any:
        found = settled(self, expr)
        return found if found is not None or not expr.is_Boolean else self.settled_from_two(expr)

    with replaced(shape_env.FreeShapeEnv, "settled", specialised):
        yield


# -- verification ----------------------------------------------------------------------------------------------


@fault
def a_class_is_admitted_unverified() -> Iterator[None]:
    with replaced(verify, "differs", lambda *args, **kwargs: None):
        yield


@fault
def shapes_are_not_compared() -> Iterator[None]:
    with overlooking(": captured for shape"):
        yield


@unfound("made up for: with aot_eager results have the strides that torch's kernels give them")
def strides_are_not_compared() -> Iterator[None]:
    with overlooking(": captured for strides"):
        yield


@fault
def shared_memory_is_not_compared() -> Iterator[None]:
    with overlooking("memory shared"):
        yield


@fault
def errors_of_the_concrete_run_are_taken_for_results() -> Iterator[None]:
    with overlooking("captured for a result"):
        yield


@unfound("made up for: with aot_eager torch's kernels raise eager's error when the graph runs")
def indices_into_nothing_are_admitted() -> Iterator[None]:
    with replaced(index_reads.Reads, "into_nothing", lambda self, is_zero: False):
        yield


@fault
def statistics_of_nothing_are_admitted() -> Iterator[None]:
    with replaced(verify, "_normalises_nothing", lambda run, node, tensors: False):
        yield


@unfound("not reached: the ways of the calls that were tried give the same values")
def other_ways_are_taken_for_the_same() -> Iterator[None]:
    with replaced(NodeRecord, "chooses_otherwise", lambda self, sizes: False):
        yield


@fault
def a_stand_in_is_not_verified() -> Iterator[None]:
    with replaced(engine, "holds", lambda recording, sizes: True):
        yield


# -- dispatch --------------------------------------------------------------------------------------------------


@fault
def every_key_is_admitted() -> Iterator[None]:
    with replaced(Admission, "_judge", lambda self, key: True):
        yield


@fault
def no_new_key_is_admitted() -> Iterator[None]:
    judge = Admission._judge

    with replaced(Admission, "_judge", lambda self, key: False if self.known else judge(self, key)):
        yield


@unfound("not reached: the last number of a key is mostly a stride of 1")
def the_key_leaves_out_the_last_number() -> Iterator[None]:
    call = Admission._learn
    seen: dict[Any, bool] = {}

    def short(self: Admission, key: tuple[int, ...]) -> bool:
        return seen.setdefault((id(self), key[:-1]), call(self, key))

    with replaced(Admission, "_learn", short):
        yield


@fault
def classes_are_verified_at_the_hints() -> Iterator[None]:
    learn = Kind.learn

    def at_the_hints(self: Kind, values: tuple[Any, ...]) -> Any:
        return learn(self, tuple(7 for _ in values))

    with replaced(Kind, "learn", at_the_hints):
        yield


@fault
def predicates_are_not_checked() -> Iterator[None]:
    build = Admission._build

    def unchecked(self: Admission) -> None:
        build(self)
        assert "answers" in vars(self)
        self.answers = []

    with replaced(Admission, "_build", unchecked):
        yield


@fault
def layouts_are_not_checked() -> Iterator[None]:
    build = Admission._build

    def unchecked(self: Admission) -> None:
        build(self)
        assert "layout" in vars(self)
        self.layout = []

    with replaced(Admission, "_build", unchecked):
        yield


# -- around the graph ------------------------------------------------------------------------------------------


@fault
def views_of_written_inputs_are_left_to_torch() -> Iterator[None]:
    with replaced(output_aliases, "restorer", lambda graph: None):
        yield


@unfound("not reached: takes a write to a view of a leaf that is empty at a later call; an earlier generator had one")
def empty_views_of_leaves_may_be_written_to() -> Iterator[None]:
    mark = memory.mark_visible_sharing

    def forgetful(graph: Any, recording: Recording) -> None:
        mark(graph, recording)
        for node in recording.nodes:
            node.leaf_written = False

    with replaced(memory, "mark_visible_sharing", forgetful):
        yield


@fault
def offsets_of_views_are_forgotten() -> Iterator[None]:
    with replaced(output_aliases, "_differs", lambda result, stride, offset: False):
        yield


@fault_with(WITH_INDUCTOR)
def slices_do_not_clamp() -> Iterator[None]:
    with replaced(slice_bounds, "index", lambda size, bound: bound + size if bound < 0 else bound):
        yield


@unfound("made up for: the copy to such a buffer fails while it is traced, and the call runs eagerly")
def a_buffer_of_another_shape_is_written_as_it_is() -> Iterator[None]:
    owner = next(c for c in vars(out_calls).values() if isinstance(c, type) and hasattr(c, "_require_shape"))
    with replaced(owner, "_require_shape", lambda self, out, value: None):
        yield


@unfound("made up for: the program does not hold at its own sizes and is given up; its calls run eagerly")
def an_answer_is_the_opposite() -> Iterator[None]:
    note = Recording._note

    def opposite(self: Recording, expr: Any, outcome: bool) -> Any:
        made = note(self, expr, outcome)
        return dataclasses.replace(made, outcome=not outcome) if isinstance(expr, sympy.Eq) else made

    with replaced(Recording, "_note", opposite):
        yield


@fault
def a_capture_that_fails_is_an_error() -> Iterator[None]:
    with replaced(failures, "runs_eagerly", lambda *args, **kwargs: False):
        yield


@unfound("made up for: the general answers at 0 and 1 make the program that a stand-in would make")
def nothing_stands_in_for_zero_and_one() -> Iterator[None]:
    with replaced(capture_attempts, "STAND_INS", ({},)):
        yield


@unfound("made up for: a stand-in is verified at the sizes that came, and taken back")
def stand_ins_are_ones() -> Iterator[None]:
    with replaced(capture_attempts, "STAND_INS", ({0: 1}, {})):
        yield


@fault
def writes_to_inputs_are_lost() -> Iterator[None]:
    compile_graph = engine.Engine.compile_graph

    def copying(self: Any, graph: Any, inputs: Any) -> Any:
        made = compile_graph(self, graph, inputs)
        plain = lambda a: a.clone() if isinstance(a, torch.Tensor) and not a.requires_grad else a
        return dynamo_codegen.apart_from_dynamo(lambda *args: made(*map(plain, args)))

    with replaced(engine.Engine, "compile_graph", copying):
        yield


def changing_results(change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Programs whose results are not those of their graphs."""
    compile_graph = engine.Engine.compile_graph

    def changed(self: Any, graph: Any, inputs: Any) -> Any:
        made = compile_graph(self, graph, inputs)
        each = lambda r: change(r) if isinstance(r, torch.Tensor) else r
        return dynamo_codegen.apart_from_dynamo(lambda *args: tuple(map(each, made(*args))))

    return replaced(engine.Engine, "compile_graph", changed)


@fault
def views_are_given_back_as_copies() -> Iterator[None]:
    with changing_results(torch.clone):
        yield


@fault
def results_are_cut_off_from_their_gradients() -> Iterator[None]:
    with changing_results(torch.detach):
        yield


@fault
def every_size_is_baked_in() -> Iterator[None]:
    free = Recording.add_symbol

    def baked(self: Recording, symbol: Any, source: Any, *, actual: Any, hint: Any) -> None:
        free(self, symbol, source, actual=actual, hint=hint)
        if self.symbols[symbol].kind == "size" and hint == actual:
            self.predicates[sympy.Eq(symbol, actual)] = self._note(sympy.Eq(symbol, actual), True)

    with replaced(Recording, "add_symbol", baked):
        yield


@fault
def errors_of_eager_calls_are_all_alike() -> Iterator[None]:
    call = compiler.CompiledFunction.__call__

    def alike(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return call(self, *args, **kwargs)
        except Exception as error:
            raise RuntimeError(str(error)) from error

    with replaced(compiler.CompiledFunction, "__call__", alike):
        yield


@fault
def a_known_way_is_gone_without_asking_its_guards() -> Iterator[None]:
    code = shortcuts.Way.code
    with replaced(shortcuts.Way, "code", lambda self, names=None: code(self)):
        yield


@fault
def questions_about_numbers_are_not_recorded() -> Iterator[None]:
    assume = Recording._assume

    def forgetful(self: Recording, expr: Any, outcome: Any, *, baked: bool = False) -> None:
        if not self._is_about_numbers(expr):
            assume(self, expr, outcome, baked=baked)

    with replaced(Recording, "_assume", forgetful):
        yield


@fault
def checks_of_the_user_are_dropped() -> Iterator[None]:
    with replaced(capture_scope, "_expect_true", lambda self, file, line: True):
        yield


@unfound("not reached: takes `max(n, 1)` of a size of 0 that shows")
def the_greater_of_a_size_and_one_is_the_size() -> Iterator[None]:
    with replaced(capture_scope, "_makes_strides", lambda: True):
        yield


@fault
def rules_of_operators_are_not_taken() -> Iterator[None]:
    # All but the one without which the process dies.
    kept = F.scaled_dot_product_attention
    with replaced(ops, "RULES", {kept: ops.RULES[kept]}):
        yield


@fault
def warnings_of_eager_calls_are_lost() -> Iterator[None]:
    call = compiler.CompiledFunction.__call__

    def silent(self: Any, *args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call(self, *args, **kwargs)

    with replaced(compiler.CompiledFunction, "__call__", silent):
        yield


@unfound("made up for: the strides of the call are not those of the program, and it runs eagerly")
def strides_of_expanded_inputs_are_taken_for_dense() -> Iterator[None]:
    symbolic = shape_env.symbolic_strides

    def dense(sizes: Any, strides: Any, symbols: Any, free_stride: Any) -> Any:
        return symbolic(sizes, [s or 1 for s in strides], symbols, free_stride)

    with replaced(shape_env, "symbolic_strides", dense):
        yield


@fault
def questions_of_the_user_are_decisions_of_the_next_node() -> Iterator[None]:
    with replaced(Recording, "_assume_truth", lambda self, expr, truth: None):
        yield


# -- variants --------------------------------------------------------------------------------------------------


@fault_with(WITH_VARIANTS)
def the_key_of_a_variant_leaves_out_a_size() -> Iterator[None]:
    key = exact_sizes.Master.key

    def short(self: Any) -> Any:
        whole = key(self)
        return lambda args: (0, *whole(args)[1:])

    with replaced(exact_sizes.Master, "key", short):
        yield


@unfound("not reached: takes two calls of one program, alike in sizes, whose inputs have gaps of other widths")
def the_key_of_a_variant_leaves_out_strides() -> Iterator[None]:
    parts = exact_sizes.Master.key_parts

    def blind(self: Any) -> Any:
        return tuple(p.replace(".stride()", ".shape") for p in parts(self))

    with replaced(exact_sizes.Master, "key_parts", blind):
        yield


@fault_with(WITH_VARIANTS)
def the_key_of_a_variant_leaves_out_numbers() -> Iterator[None]:
    key = exact_sizes.Master.key

    def without(self: Any) -> Any:
        whole, numbers = key(self), {at for value, at in self.in_key() if not isinstance(value, torch.Tensor)}
        return lambda args: tuple(0 if at in numbers else v for at, v in enumerate(whole(args)))

    with replaced(exact_sizes.Master, "key", without):
        yield


@fault_with(WITH_VARIANTS)
def a_variant_is_compiled_without_gradients() -> Iterator[None]:
    of = exact_sizes.Master.of.__func__  # type: ignore[attr-defined]

    def ungraded(cls: Any, graph: Any) -> Any:
        made = of(cls, graph)
        return None if made is None else dataclasses.replace(made, grad=False)

    with replaced(exact_sizes.Master, "of", classmethod(ungraded)):
        yield


# -- merges: generated programs hardly branch on a size of 1, so these are looked for in `merged_programs` -------------

MERGES: dict[str, Fault] = {}


def merge_fault(function: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    MERGES[function.__name__] = contextlib.contextmanager(function)
    return function


@merge_fault
def graphs_that_differ_are_merged() -> Iterator[None]:
    with replaced(merging._Read, "agrees", lambda self, newer: True):
        yield


@merge_fault
def frames_that_differ_are_merged() -> Iterator[None]:
    with replaced(compiled_frames, "besides_the_graph", lambda code: ()):
        yield


@merge_fault
def guards_of_the_other_side_are_not_taken_on() -> Iterator[None]:
    with replaced(compiled_frames, "guards", lambda text: frozenset()):
        yield


@merge_fault
def a_merge_holds_for_all_sizes() -> Iterator[None]:
    with replaced(merging, "narrowed", lambda facts, more: []):
        yield


@merge_fault
def a_merge_holds_whatever_else_is_asked() -> Iterator[None]:
    narrowed = merging.narrowed

    def numbers_alone(facts: Any, more: Any) -> Any:
        known = narrowed(facts, more)
        return None if known is None else [f for f in known if isinstance(f, sympy.Eq)]

    with replaced(merging, "narrowed", numbers_alone):
        yield


@merge_fault
def causal_masks_never_matter() -> Iterator[None]:
    never = dict.fromkeys(settled.RULES, lambda args, sizes: {**args, "is_causal": False})
    with mock.patch.dict(settled.RULES, never):
        yield


@merge_fault
def memory_of_results_is_not_compared() -> Iterator[None]:
    with replaced(merging._Reading, "_sharing", lambda self, values: ()):
        yield


@merge_fault
def arguments_are_not_compared() -> Iterator[None]:
    plain = merging._Reading._plain

    def blind(self: Any, value: Any) -> Any:
        return "a number" if type(value) is int else plain(self, value)

    with replaced(merging._Reading, "_plain", blind):
        yield


# -- numbers ---------------------------------------------------------------------------------------------------


def fault_of_numbers(function: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    OF_NUMBERS[function.__name__] = contextlib.contextmanager(function)
    return function


@fault_of_numbers
def a_negative_divisor_is_taken_for_one() -> Iterator[None]:
    def print_floor_div(self: Any, expr: Any) -> str:
        base, divisor = map(self.doprint, expr.args)
        return f"(({base}) // max({divisor}, 1))"

    with replaced(index_divisions, "_print_floor_div", print_floor_div):
        yield
