"""The scope in which Dynamo captures: the frame callback and the repairs that hold in it.

Owns the scope in which Dynamo captures for anyshape: the callback that stands where Dynamo's own frame converter
stands, and the patches that hold while it runs. Dynamo compiles under a process-wide lock, the patches are made
inside it and undone before it is released, so a stock `torch.compile` in the same process never sees one.
"""

from __future__ import annotations

import contextlib
import math
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch._dynamo.backends.common as aot_backends
import torch._dynamo.backends.debugging as debugging
import torch._dynamo.backends.registry as backend_registry
import torch._dynamo.config as dynamo_config
import torch._dynamo.convert_frame as convert_frame
import torch._dynamo.decorators as decorators
import torch._dynamo.eval_frame as eval_frame
import torch._dynamo.exc as dynamo_exc
import torch._dynamo.external_utils as external_utils
import torch._dynamo.guards as dynamo_guards
import torch._dynamo.trace_rules as trace_rules
import torch._dynamo.variables.builder as builder
import torch.compiler.config as compiler_config
import torch.fx.experimental.symbolic_shapes as symbolic_shapes
import torch.nn.modules.module as nn_module
from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list
from torch._dynamo.source import SyntheticLocalSource
from torch._dynamo.types import ConvertFrameReturn, FrameAction, FrameExecStrategy
from torch._guards import TracingContext
from torch._subclasses.meta_utils import MetaConverter
from torch.fx.experimental.sym_node import SymNode
from torch.utils import _pytree as pytree

from anyshape import _version
from anyshape._torch.capture import deferred_calls, failures, interpreted_graphs, nodes, out_calls
from anyshape._torch.capture import rules as rule_calls
from anyshape._torch.compile import compile_scope, direct_writes, loose_strides
from anyshape._torch.fake_runs import collapsed_dims
from anyshape._torch.fake_runs.unheard_warnings import unheard
from anyshape._torch.graphs import aten_graphs, memory, steps, subscripts
from anyshape._torch.repairs import registry
from anyshape._torch.repairs.dynamo import associative_scan, graph_breaks, lazy_modules, random_state, stepped_ranges
from anyshape._torch.repairs.fake import cumprod_backward, fft_meta, reshape_strides, slice_bounds, split_decomp
from anyshape._torch.repairs.fake.contiguity_memo import forget_answers
from anyshape._torch.repairs.functionalization import first_calls
from anyshape._torch.repairs.registry import repair
from anyshape._torch.repairs.scalars import (
    float_arithmetic,
    formatted_numbers,
    integer_functions,
    number_members,
    scalar_arguments,
    scalar_writes,
    symint_arithmetic,
)
from anyshape._torch.runtime import dynamo_codegen, eager_errors
from anyshape._torch.symbolic.shape_env import IS_EXPRESSIBLE, SAME_FLOAT, SHARE_MEMORY, FreeShapeEnv
from anyshape.assumptions.answers import InputRecord
from anyshape.assumptions.recording import Recording

GUARD_NAME = "__anyshape_admits"

# What is declared in these holds while a call is captured, beside what is declared here.
DECLARED_IN = (
    deferred_calls,
    graph_breaks,
    collapsed_dims,
    compile_scope,
    float_arithmetic,
    formatted_numbers,
    integer_functions,
    interpreted_graphs,
    lazy_modules,
    dynamo_codegen,
    nodes,
    number_members,
    symint_arithmetic,
    out_calls,
    split_decomp,
    cumprod_backward,
    stepped_ranges,
    reshape_strides,
    rule_calls,
    scalar_writes,
    associative_scan,
    slice_bounds,
    steps,
    subscripts,
    fft_meta,
)


def eagerly() -> ConvertFrameReturn:
    """This call runs as it is, with all that it calls; the next one is looked at afresh."""
    return ConvertFrameReturn(
        frame_exec_strategy=FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP), apply_to_code=False
    )


def left_out() -> ConvertFrameReturn:
    """This frame runs as it is, and what it calls is looked at; so is the frame the next time."""
    return ConvertFrameReturn(
        frame_exec_strategy=FrameExecStrategy(FrameAction.SKIP, FrameAction.DEFAULT), apply_to_code=False
    )


@repair(
    "torch._dynamo.config:assume_static_by_default",
    "torch._dynamo.config:automatic_dynamic_shapes",
    "torch._dynamo.config:specialize_int",
    "torch._dynamo.config:capture_scalar_outputs",
    "torch._dynamo.config:capture_dynamic_output_shape_ops",
    "torch._dynamo.config:recompile_limit",
    "torch._dynamo.config:accumulated_recompile_limit",
    "torch._dynamo.config:enable_cpp_symbolic_shape_guards",
    "torch._dynamo.config:suppress_errors",
    "torch._dynamo.config:skip_nnmodule_hook_guards",
    "torch._dynamo.config:record_runtime_overhead",
    "torch._dynamo.config:allow_empty_graphs",
    scope="capture",
    phase="capture",
    kind="meaning",
    absent="skip",
    symptom="Sizes are fixed, a second one is a recompile, and numbers out of the data break the graph.",
    cause="It is what torch does for a callable of which nothing is known.",
    cure="Every size and number is free, and nothing is counted against limits of torch's.",
    goes="never: it is what the contract says",
)
def settings(*, whole: bool, static: bool) -> dict[str, Any]:
    """`whole`: a call of the callable begins here. `static`: sizes and numbers are those of the call."""
    # One call that computes nothing must not make Dynamo skip the code for good.
    config = {**_CONFIG, "allow_empty_graphs": whole}
    return config | {"assume_static_by_default": True, "specialize_int": True} if static else config


_CONFIG = {
    "assume_static_by_default": False,
    "automatic_dynamic_shapes": False,
    "specialize_int": False,
    "capture_scalar_outputs": True,
    "capture_dynamic_output_shape_ops": True,
    "recompile_limit": 1 << 30,
    "accumulated_recompile_limit": 1 << 30,
    "enable_cpp_symbolic_shape_guards": False,
    "suppress_errors": False,
    "skip_nnmodule_hook_guards": False,  # a hook that is added or removed later belongs to the call
    "record_runtime_overhead": False,  # two calls of Python in each call, for a mark in profiles
}


@contextlib.contextmanager
def patches(
    make_recording: Callable[[], Recording],
    rules: Sequence[Mapping[Any, Any]],
    *,
    whole: bool,
    facts: str = "",
    frozen: torch.nn.Module | None = None,
    exporting: bool = False,
    floats: frozenset[str] = frozenset(),
    static: bool = False,
) -> Iterator[None]:
    """Everything of torch that differs while anyshape captures: what is declared for a capture and for compiling.

    `rules` are those for all calls, for those given a size or a float, and for those about oblivious sizes.
    `whole`: a call of the callable begins here. `facts` keeps Inductor from mixing declarations up. `frozen` is a
    module that does not change. `exporting`: there is no frame that could make a call after the graph. `floats` of
    modules have changed. `static`: sizes and numbers are those of the call.
    """
    for_all, of_sizes, of_floats, oblivious = rules
    tables = (
        rule_calls.Table({**for_all, **random_state.rules(), **associative_scan.rules()}),
        rule_calls.Table(of_sizes, when=rule_calls.is_given_a_size),
        rule_calls.Table(of_floats, when=rule_calls.is_given_a_float),
        rule_calls.Table(oblivious, when=rule_calls.concerns_oblivious),
    )
    with (
        first_calls.noted(),
        collapsed_dims.repaired(),
        registry.entered(
            "capture",
            "compile",
            make_recording=make_recording,
            rules=tables,
            whole=whole,
            facts=facts,
            frozen=frozen,
            exporting=exporting,
            floats=floats,
            static=static,
            abandon=failures.Retrace,
        ),
    ):
        yield


@repair(
    "torch._dynamo.output_graph:ShapeEnv",
    scope="capture",
    phase="capture",
    kind="meaning",
    symptom="A question about a size is a guard on it, or a data-dependent error.",
    cause="output_graph.py makes torch's own shape environment.",
    cure="The environment is anyshape's, which writes down what is asked and answers for all sizes.",
    goes="when torch can be given an environment",
)
def shape_env(stock: Any, *, make_recording: Callable[[], Recording]) -> Any:
    return lambda **settings: FreeShapeEnv(recording=make_recording(), **settings)


@repair(
    "torch._dynamo.variables.builder:is_int_specialization_case",
    scope="capture",
    phase="capture",
    kind="meaning",
    symptom="An int argument of 0 or 1 is a constant.",
    cause="variables/builder.py:is_int_specialization_case says so.",
    cure="0 and 1 are ints like any other.",
    goes="when 0 and 1 are not specialized",
)
def is_int_specialization_case(stock: Any) -> Any:
    return lambda value, source: bool(stock(2 if value in (0, 1) else value, source))


@repair(
    "torch.compiler.config:cache_key_tag",
    scope="capture",
    phase="lowering",
    kind="meaning",
    absent="skip",
    symptom="Code of stock torch, or of another declaration, is taken out of Inductor's cache.",
    cause="Stock entries of Inductor's cache carry guards on the sizes that stock saw.",
    cure="Ours have a tag of their own.",
    goes="never: two compilers share a cache",
)
def cache_key_tag(*, facts: str) -> dict[str, Any]:
    return {"cache_key_tag": f"{compiler_config.cache_key_tag}anyshape-{_version.code()}{facts}"}


@repair(
    f"torch.fx.experimental.symbolic_shapes:SYMPY_INTERP[{GUARD_NAME}]",
    f"torch.fx.experimental.symbolic_shapes:SYMPY_INTERP[{SHARE_MEMORY}]",
    f"torch.fx.experimental.symbolic_shapes:SYMPY_INTERP[{SAME_FLOAT}]",
    f"torch.fx.experimental.symbolic_shapes:SYMPY_INTERP[{IS_EXPRESSIBLE}]",
    scope="capture",
    phase="capture",
    kind="meaning",
    symptom="A generated guard cannot call the admission of its program.",
    cause="Its text finds names in SYMPY_INTERP alone.",
    cure="It finds them there; the guard's closure keeps the value that a name had then.",
    goes="when torch can be given a guard",
    adds=True,
)
def guard_names(stock: Any, name: str) -> Any:
    return {SHARE_MEMORY: memory.share_memory, SAME_FLOAT: scalar_arguments.same}.get(
        name, scalar_arguments.is_expressible if name == IS_EXPRESSIBLE else None
    )


def publish_guard(admission: Any) -> None:
    """What the guard generated next will call."""
    symbolic_shapes.SYMPY_INTERP[GUARD_NAME] = admission


_stock_static_eval = symbolic_shapes._static_eval_sym_bool


_stock_expect_true = SymNode.expect_true


@repair(
    "torch.fx.experimental.sym_node:SymNode.expect_true",
    scope="capture",
    phase="capture",
    kind="meaning",
    symptom="`torch._check` on a size is a guard on the size at hand.",
    cause="sym_node.py:expect_true makes it one when there is a hint.",
    cure="It is a requirement.",
    goes="when `torch._check` on a backed size is a runtime assertion",
)
def _expect_true(self: SymNode, file: str, line: int) -> bool:
    """`torch._check` on a free size is a requirement; sym_node.py makes it a guard when there is a hint."""
    if isinstance(self.shape_env, FreeShapeEnv):
        if file.endswith("symbolic_convert.py") and not self.shape_env.recording.owns(self.expr):  # an `assert`
            self.shape_env.recording.asserted.add(self.expr)
        return self.shape_env.guard_or_defer_runtime_assert(self.expr, f"{file}:{line}", fx_node=self.fx_node)
    return bool(_stock_expect_true(self, file, line))


_stock_sym_max = SymNode.sym_max


@repair(
    "torch.fx.experimental.sym_node:SymNode.sym_max",
    scope="capture",
    phase="capture",
    kind="speed",
    symptom="Strides are products of `max(size, 1)`, and kernels do not run over two dims as one.",
    cause="_prims_common/__init__.py:make_contiguous_strides_for is right for sizes of 0 too.",
    cure="A stride is the product of sizes: they differ where nothing is addressed.",
    goes="when Inductor sees that the two are the same where it matters",
)
def _sym_max(self: SymNode, other: Any) -> Any:
    """The stride of a dim is the product of `max(size, 1)` of those inside it: `size` will do where it is a stride.

    They differ where a size is 0, and then nothing is addressed; as a plain product it is the same expression as an
    input's, and a kernel runs over both as one dim.
    """
    if isinstance(self.shape_env, FreeShapeEnv) and other.maybe_as_int() == 1 and _makes_strides():
        return self
    return _stock_sym_max(self, other)


def _makes_strides() -> bool:
    """Whether the maximum is asked for by code that makes strides: torch's own, in Python or (without a frame) C++."""
    frame: Any = sys._getframe(2)
    for _ in range(4):
        if frame.f_code.co_name == "sym_max":
            return bool(frame.f_back.f_code.co_name == "make_contiguous_strides_for")
        frame = frame.f_back
    return True


_stock_wrap_symfloat = builder.VariableBuilder.wrap_symfloat


@repair(
    "torch._dynamo.variables.builder:VariableBuilder.wrap_symfloat",
    scope="capture",
    phase="capture",
    kind="meaning",
    symptom="A float of a module costs a second trace; -0.0 is taken for 0.0.",
    cause="variables/builder.py:wrap_symfloat makes a symbol of every float.",
    cure="One of a module is a constant until it changes, and so is one that no expression says.",
    goes="when a float is made symbolic where it changes",
)
def _floats(stock: Any, *, floats: frozenset[str]) -> Any:
    def wrap_symfloat(self: Any, value: float) -> Any:
        return _stock_wrap_symfloat(self, value) if self.source.name in floats else _wrap_symfloat(self, value)

    return wrap_symfloat


def _wrap_symfloat(self: Any, value: float) -> Any:
    """A float of a module (`eps`, `p`) is a constant until it changes: as a symbol it costs a second trace."""
    source = self.source.guard_source
    own = source.is_unspecialized_nn_module() or source.is_unspecialized_builtin_nn_module()
    own |= value is getattr(math, getattr(self.source, "member", ""), None)  # `math.pi` does not change
    if own or (value == 0 and not scalar_arguments.is_expressible(value)):
        if value == 0:  # the guard takes 0.0 and -0.0 for one
            self.tx.output.shape_env.recording.exact_floats.append((self.source, value))
        self.install_guards(dynamo_guards.GuardBuilder.CONSTANT_MATCH)
        return builder.ConstantVariable.create(value=value, source=self.source)
    return _stock_wrap_symfloat(self, value)


_stock_wrap_symint = builder.VariableBuilder.wrap_symint


@repair(
    "torch._dynamo.variables.builder:VariableBuilder.wrap_symint",
    scope="capture",
    phase="capture",
    kind="meaning",
    symptom="Kernels compute with an int beyond 2**53 otherwise than Python.",
    cause="variables/builder.py:wrap_symint makes a symbol of every int.",
    cure="Such an int is a constant.",
    goes="when kernels are told such ints exactly",
)
def _wrap_symint(self: Any, value: int, *args: Any, **kwargs: Any) -> Any:
    if scalar_arguments.is_expressible(value):
        return _stock_wrap_symint(self, value, *args, **kwargs)
    self.install_guards(dynamo_guards.GuardBuilder.CONSTANT_MATCH)
    return builder.ConstantVariable.create(value=value, source=self.source)


_stock_wrap_to_fake = builder.wrap_to_fake_tensor_and_record


@repair(
    "torch._dynamo.variables.builder:wrap_to_fake_tensor_and_record",
    scope="capture",
    phase="capture",
    kind="meaning",
    symptom="An input that another input is a view of has two sets of symbols.",
    cause="variables/builder.py notes for it what was made last, and AOTAutograd makes it fake by that.",
    cure="It keeps its symbols, and its version is noted.",
    goes="when tensor_to_context keeps what it has",
)
def _wrap_to_fake(e: Any, tx: Any, **kwargs: Any) -> Any:
    """An input that another input is a view of keeps its symbols: AOTAutograd makes it fake by what is noted last.

    Its version is noted: an input that shares the memory of another is not at 0 when it has been made. What the frame
    makes before the graph (`nn.Parameter` inside) is made with sizes that are numbers, and no guard can look at it.
    """
    contexts = tx.output.tracing_context.tensor_to_context
    known = contexts.get(e) if isinstance(e, torch.Tensor) else None
    made_before = isinstance(kwargs.get("source"), SyntheticLocalSource)
    with dynamo_config.patch(assume_static_by_default=True) if made_before else contextlib.nullcontext():
        made = _stock_wrap_to_fake(e, tx, **kwargs)
    if known is not None:
        contexts[e] = known
    elif isinstance(made, torch.Tensor):
        tx.output.shape_env.recording.versions[id(made)] = made._version
    return made


_stock_aot_module_simplified = aot_backends.aot_module_simplified


@repair(
    "torch._dynamo.backends.common:aot_module_simplified",
    scope="capture",
    phase="AOT",
    kind="meaning",
    symptom="What aten graphs ask and write is not verified.",
    cause="They are made, and compiled, without a word to who captured.",
    cure="They are remembered before they are compiled.",
    goes="when AOTAutograd can be given passes",
)
def _aot_module_simplified(mod: Any, args: Any, **kwargs: Any) -> Any:
    """AOTAutograd, with the aten graphs that it makes remembered for verification before they are compiled."""
    recording = current_recording()
    if recording is None:
        return _stock_aot_module_simplified(mod, args, **kwargs)
    calls_kernels = kwargs.get("fw_compiler") is debugging.boxed_nop

    def remembering(compiler: Any, *, alone: bool) -> Any:
        def compile_(graph: Any, inputs: Any) -> Any:
            if alone and (recording.units or recording.is_known is not None):
                recording.graph_of_calls = aten_graphs.remember(graph, recording.inputs)
                if recording.is_known is not None and recording.is_known(recording.graph_of_calls):
                    return _not_compiled
                if isinstance(recording.env, FreeShapeEnv):
                    recording.forgotten = recording.env.forget(recording.units)
            recording.aten.extend(nodes.aten_nodes(graph, strides_show=not recording.loose_strides))
            first_calls.note(graph)
            formatted_numbers.keep_signs(graph)
            if recording.leaves_no_trace is None:  # the forward; its gradient is compiled after it
                recording.leaves_no_trace = eager_errors.leaves_no_trace(graph)
            if recording.loose_strides:
                loose_strides.prepare(graph, recording)
            elif calls_kernels:
                loose_strides.views_may_copy(graph)
            for position, reason in direct_writes.survey(graph).items() if recording.out_calls else ():
                if position < len(recording.inputs):
                    recording.copied.setdefault(recording.inputs[position], reason)
            env = recording.env
            planned = env.planned() if isinstance(env, FreeShapeEnv) else contextlib.nullcontext()
            with recording.lowering(), planned, compile_scope.told_apart(graph):
                compiled = compiler(graph, inputs)
            formatted_numbers.write_now(graph)
            return compiled

        return compile_

    for name in ("fw_compiler", "bw_compiler", "inference_compiler"):
        if kwargs.get(name) is not None:
            kwargs[name] = remembering(kwargs[name], alone=name == "inference_compiler")
    with unheard():  # every node is run again, for free sizes
        return _stock_aot_module_simplified(mod, args, **kwargs)


def _not_compiled(*args: Any) -> Any:
    raise AssertionError("a program that is another one is not called")


_not_compiled._boxed_call = True  # type: ignore[attr-defined]

_stock_meta_converter = MetaConverter.__call__


@repair(
    "torch._subclasses.meta_utils:MetaConverter.__call__",
    scope="capture",
    phase="fake run",
    kind="meaning",
    symptom="Programs split by what is asked while an input is made fake.",
    cause="meta_utils.py asks about sizes to make views.",
    cure="It is asked off the record, and forgotten.",
    goes="when fake inputs are made without questions",
)
def _meta_converter(self: Any, *args: Any, **kwargs: Any) -> Any:
    """What is asked while an input is made fake is about the making, not about the program."""
    env = kwargs.get("shape_env", args[1] if len(args) > 1 else None)
    if not isinstance(env, FreeShapeEnv):
        return _stock_meta_converter(self, *args, **kwargs)
    with env.recording.off_the_record(), env.making(args[0] if args else kwargs.get("t"), kwargs.get("source")):
        made = _stock_meta_converter(self, *args, **kwargs)
        forget_answers(made)
        return made


_CheckFunctionManager = convert_frame.CheckFunctionManager
_stock_concrete_values = dynamo_guards.convert_to_concrete_values


@repair(
    "torch._dynamo.convert_frame:CheckFunctionManager",
    scope="capture",
    phase="capture",
    kind="meaning",
    symptom="Strides of free inputs are guarded, also where they address nothing.",
    cause="guards.py:CheckFunctionManager checks sizes and strides that a graph was given.",
    cure="The admission checks them, which knows which of them matter.",
    goes="when guards of strides can be left to a program",
)
def _check_function_manager(code: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
    """Strides of free inputs are checked by the admission, which knows which of them address anything."""
    if isinstance(getattr(graph, "shape_env", None), FreeShapeEnv):
        why = getattr(graph, "compile_subgraph_reason", None)
        if why is not None and why.graph_break:
            graph.shape_env.recording.graph_breaks.append(graph_breaks.text(why))
        recording = graph.shape_env.recording
        for source, info in graph.input_source_to_sizes_strides.items():
            if any(isinstance(n, torch.SymInt) for n in info["size"]):
                info["stride"] = [None] * len(info["stride"])
                if recording.oblivious.symbols and source.name in recording.let_in:
                    info["size"] = [None] * len(info["size"])  # declared numbers, which the entry check has seen
    return _CheckFunctionManager(code, graph, *args, **kwargs)


@repair(
    "torch._dynamo.guards:convert_to_concrete_values",
    scope="capture",
    phase="capture",
    kind="meaning",
    symptom="A guard on a tensor cannot leave a stride open.",
    cause="guards.py:convert_to_concrete_values takes a list of numbers, or None for all of them.",
    cure="Each of them may be None: the admission checks it.",
    goes="with `capture_scope.check_function_manager`",
)
def _concrete_values(numbers: Any) -> list[int | None]:
    return [None if n is None else _stock_concrete_values([n])[0] for n in numbers]


@repair(
    "torch._dynamo.guards:profile_guard_manager",
    scope="capture",
    phase="capture",
    kind="speed",
    symptom="Guards are run many times when they are made, with caches emptied.",
    cause="guards.py:profile_guard_manager makes a figure for a log.",
    cure="It is not made.",
    goes="when the figure is made for those who ask",
    absent="skip",
)
def _untimed(*_: Any) -> float:
    return 0.0


@repair(
    "torch.fx.experimental.symbolic_shapes:_static_eval_sym_bool",
    scope="capture",
    phase="capture",
    kind="meaning",
    symptom="What statically_known_true cannot tell is assumed, and written down nowhere.",
    cause="symbolic_shapes.py answers without a guard.",
    cure="It is a question all the same.",
    goes="when torch records general answers",
)
def _static_eval(value: Any) -> bool | None:
    """`statically_known_true` and its kin: what they cannot tell is a question all the same, and is written down."""
    env = getattr(value.node, "shape_env", None)
    if not isinstance(env, FreeShapeEnv):
        return _stock_static_eval(value)
    expr = value.node.expr
    recording = env.recording
    if not recording.owns(expr):
        return _stock_static_eval(value)
    known = env.settled(expr)
    if known is None and _asked_by_the_user(recording):
        return bool(recording.answer(expr, None))  # eager knows every size
    if known is None:
        recording.note_static_query(expr)
    return None if known is None else bool(known)


def _asked_by_the_user(recording: Recording) -> bool:
    return recording.node is None and recording.phase == "trace" and nodes.locate()[0] == "user"


_stock_hint_disproves = getattr(symbolic_shapes, "_sym_node_hint_disproves", None)


@repair(
    "torch.fx.experimental.symbolic_shapes:_sym_node_hint_disproves",
    scope="capture",
    phase="capture",
    kind="meaning",
    symptom="What is not so for the sizes at hand is taken for unknown of all.",
    cause="symbolic_shapes.py looks no further where a hint disproves (2.13 on).",
    cure="The question is asked.",
    goes="when hints are not looked at there",
    absent="skip",
)
def _hint_disproves(node: Any, target: bool) -> bool:
    """What is not so for the sizes at hand is not known of all, and torch looks no further (2.13 on)."""
    env = getattr(node, "shape_env", None)
    if isinstance(env, FreeShapeEnv) and env.recording.owns(node.expr) and _asked_by_the_user(env.recording):
        return False
    return bool(_stock_hint_disproves(node, target)) if _stock_hint_disproves is not None else False


def graph_break(text: str) -> Exception:
    """What Dynamo takes for a branch that it cannot follow: it breaks the graph there."""
    return dynamo_exc.UserError(dynamo_exc.UserErrorType.ANTI_PATTERN, text)


def graph_numbers(graph: Any) -> list[tuple[int, str, Any]]:
    """The numbers of a graph's inputs: the argument, how a number is reached from it, and its expression."""
    found: list[tuple[int, str, Any]] = []
    for index, node in enumerate(graph.graph.find_nodes(op="placeholder")):
        value = node.meta.get("example_value")
        if isinstance(value, torch.SymInt):
            found.append((index, "", value.node._expr))
        elif isinstance(value, torch.Tensor) and value.layout is torch.strided:
            for attribute, numbers in (("shape", value.shape), ("stride()", value.stride())):
                for i, number in enumerate(numbers):
                    if isinstance(number, torch.SymInt):
                        found.append((index, f".{attribute}[{i}]", number.node._expr))
    return found


def _is_disabled_alone(caller: types.FrameType | None) -> bool:
    """Whether the frame is that of `torch.compiler.disable(recursive=False)`; torch looks at what called its converter.

    (convert_frame.py, `ConvertFrameAssert.__call__`: with a converter in between it finds no such caller.)
    """
    while caller is not None and caller.f_code.co_filename == convert_frame.__file__:
        caller = caller.f_back
    return caller is not None and caller.f_code is decorators._nonrecursive_disable_wrapper_code


def has_hooks_before(frame: types.FrameType) -> bool:
    """Whether a frame is a module's `forward`, and hooks have run before it."""
    owner = frame.f_locals.get("self")
    if not isinstance(owner, torch.nn.Module) or frame.f_code.co_name != "forward":
        return False
    return bool(owner.__dict__.get("_forward_pre_hooks")) or bool(nn_module._global_forward_pre_hooks)


class Converter:
    """Stands where Dynamo's frame converter stands, for one compiled callable.

    `capture(convert, frame)` is called under Dynamo's lock; it decides how often and with which recording the wrapped
    converter runs.
    """

    def __init__(self, inner: Any, capture: Callable[[Callable[[], Any], Any], Any]) -> None:
        self._inner = inner
        self._capture = capture
        # eval_frame walks this chain to find the backend that a cache entry belongs to.
        self._torchdynamo_orig_backend = inner._torchdynamo_orig_backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __call__(self, frame: Any, cache_entry: Any, hooks: Any, frame_state: Any, skip: int = 0) -> Any:
        if _is_disabled_alone(sys._getframe(1)):
            return ConvertFrameReturn(apply_to_code=False)

        def convert() -> Any:
            return self._inner(frame, cache_entry, hooks, frame_state, skip=skip + 2)

        return self._capture(convert, frame)


def install(
    function: Any,
    backend: Any,
    *,
    fullgraph: bool,
    capture: Callable[..., Any],
    disable: bool = False,
    guard_filter: Callable[..., Any] | None = None,
) -> Any:
    """`torch.compile`'s own callable or module for `function`, with frames converted by `capture`."""
    context = torch._dynamo.optimize(
        backend=backend, nopython=fullgraph, disable=disable, guard_filter_fn=_kept(guard_filter)
    )
    if _REGION is not None and hasattr(context, "_isolate_recompiles_id"):
        context._isolate_recompiles_id = _REGION
    callback = getattr(context, "callback", None)
    if not disable and getattr(function, "__name__", "") == "_call_impl" and _passed_over(function):
        function = external_utils.wrap_inline(function)
    if callback is not None:
        callback._torchdynamo_orig_backend = Converter(callback._torchdynamo_orig_backend, capture)
    return context(function)


def _passed_over(call: Any) -> bool:
    """Whether Dynamo converts no frame of a module's calls: all of their code is torch's own (`nn.Sequential`).

    For a module that is compiled in place (eval_frame.py, `__call__`, which wraps other functions of torch's itself).
    """
    module = getattr(call, "__self__", None)
    return isinstance(module, torch.nn.Module) and bool(trace_rules.check(module.forward))


# What anyshape compiles does not count against the limits of stock compilations of the same code (torch 2.13 on).
_REGION = next(eval_frame._next_isolate_recompiles_id) if hasattr(eval_frame, "_next_isolate_recompiles_id") else None


def _kept(filter_: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """A user's choice of guards; what anyshape itself asks of sizes is not torch's to leave out."""
    if filter_ is None:
        return None

    def keep(guards: Sequence[Any]) -> list[bool]:
        return [k or g.guard_type == "SHAPE_ENV" for g, k in zip(guards, filter_(guards), strict=True)]

    return keep


def guard_filter_of(options: dict[str, Any] | None) -> tuple[Any, dict[str, Any] | None]:
    """A user's choice of guards out of the options, and the other options."""
    if not options or "guard_filter_fn" not in options:
        return None, options
    return options["guard_filter_fn"], {k: v for k, v in options.items() if k != "guard_filter_fn"}


def default_backend() -> Any:
    """What `backend=None` means: the one that was set for the process, or Inductor."""
    registered = getattr(backend_registry, "get_default_backend", None)
    return "inductor" if registered is None else registered()


def inner_backend(
    backend: Any, mode: str | None, options: dict[str, Any] | None, *, frozen: bool = False, name: str | None = None
) -> Any:
    """The backend as torch.compile itself would build it from its arguments."""
    if mode is None and options is None:
        mode = "default"
    if backend == "inductor":
        made = torch._TorchCompileInductorWrapper(mode, options, True, *([] if name is None else [name]))
        if frozen:  # the sizes of what does not change need not be looked at again in each call
            made.apply_options({"size_asserts": False})
        return made
    return torch._TorchCompileWrapper(backend, mode, options, True)


def input_sources(graph: Any) -> list[str]:
    """The sources of a captured graph's inputs, in order."""
    given = [n.meta.get("grapharg") for n in graph.graph.nodes if n.op == "placeholder"]
    return [a.source.name if a is not None and a.source is not None else "" for a in given]


def graph_text(graph: Any) -> str:
    """A captured graph as text: its inputs with their sizes, and its code. The same graph gives the same text."""
    lines = []
    for node in graph.graph.find_nodes(op="placeholder"):
        value = node.meta.get("example_value")
        if isinstance(value, torch.Tensor):
            layout = f"{[str(n) for n in value.shape]} {[str(n) for n in value.stride()]}".replace("'", "")
            value = f"{value.dtype} {value.device} {layout}"
        lines.append(f"# {node.name}: {value}")
    code = [line.rstrip() for line in graph.graph.python_code("self").src.splitlines() if line.strip()]
    return "\n".join([*lines, *(line.partition("  # ")[0] for line in code), ""])


def generates_code(backend: Any) -> bool:
    """Whether a backend of `inner_backend`'s is Inductor."""
    return isinstance(backend, torch._TorchCompileInductorWrapper)


def current_recording() -> Recording | None:
    """The recording of the capture that called the backend."""
    context = TracingContext.try_get()
    env = getattr(getattr(context, "fake_mode", None), "shape_env", None)
    return env.recording if isinstance(env, FreeShapeEnv) else None


def guard_text(guards: Any, inputs: Sequence[InputRecord]) -> str:
    """All that is guarded, but for what the admission looks at: free sizes and strides."""
    static = {i.source: [str(s) if s.is_number else "free" for s in i.sizes] for i in inputs}
    lines = []
    for line in str(guards).splitlines():
        source = next((s for s in static if f"check_tensor({s}," in line), None)
        if source is not None:
            line = re.sub(r"size=\[.*?\], stride=\[.*?\]", str(static[source]), line)
        lines.append(re.sub(r"(__builtins_dict__)_\d+", r"\1", line))
    return "\n".join(lines)


def is_served(frame: Any, codes: list[types.CodeType]) -> bool:
    """Whether one of the programs with these codes holds now: another thread may have made it in the meantime."""
    entries = _debug_get_cache_entry_list(frame.f_code) if codes else []
    return any(e.guard_manager.check(frame.f_locals) for e in entries if any(e.code is code for code in codes))


def is_torchs_own(code: types.CodeType) -> bool:
    return code.co_filename == external_utils.__file__


def call_key(frame: Any) -> Any:
    """A call as far as a failed capture of it may depend on it; None if it has a part that cannot be told."""
    parts: list[Any] = [frame.f_code]
    try:
        leaves, spec = pytree.tree_flatten(dict(frame.f_locals))
    except RecursionError:  # a container that contains itself
        return None
    parts.append(spec)
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            if leaf.layout is not torch.strided:
                return None
            parts.append((leaf.shape, leaf.stride(), leaf.dtype, leaf.device, leaf.requires_grad))
        elif isinstance(leaf, (int, float, str, bool, complex, type(None))):
            parts.append((type(leaf), leaf))
        else:
            parts.append((type(leaf), id(leaf)))
    try:
        key = (tuple(parts), torch.is_grad_enabled(), torch.is_inference_mode_enabled())
        hash(key)
    except TypeError:
        return None
    return key
