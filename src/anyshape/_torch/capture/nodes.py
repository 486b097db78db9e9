"""Running and recording graph nodes during a capture, with the questions that each asked.

Owns how a node is run while Dynamo captures, its questions written down with who asked them and where, and how the
nodes of an aten graph are remembered: a record of each, with enough of it to run it again at other sizes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch._dynamo.utils as dynamo_utils
import torch._functorch.eager_transforms as eager_transforms
import torch.nn.functional as F
from torch._dynamo.exc import unimplemented
from torch._dynamo.variables.tensor import TensorVariable
from torch._guards import TracingContext
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.types import py_sym_types

import anyshape
from anyshape._torch.fake_runs import concrete, index_reads, verify
from anyshape._torch.fake_runs.unheard_warnings import unheard
from anyshape._torch.graphs import memory, subscripts
from anyshape._torch.repairs.fake import result_dtypes, scatter_shape_checks
from anyshape._torch.repairs.fake.contiguity_memo import forget_answers
from anyshape._torch.repairs.functionalization import conj_mutation
from anyshape._torch.repairs.registry import repair
from anyshape._torch.repairs.scalars import checked_arithmetic
from anyshape._torch.symbolic.shape_env import FreeShapeEnv
from anyshape.assumptions.answers import COPY_OR_VIEW, NodeRecord
from anyshape.assumptions.questions import METADATA

_run_node = dynamo_utils.run_node
_TORCH = os.path.dirname(torch.__file__)
_HERE = os.path.join(os.path.dirname(anyshape.__file__), "_torch")
_OPS = os.path.join(os.path.dirname(anyshape.__file__), "ops")
_OWN = (_OPS, _HERE)
# Files that only hand a question on.
_PASSING_ON = ("symbolic_shapes.py", "sym_node.py", "torch/__init__.py")


def _leave_what_is_read_inside(env: FreeShapeEnv, result: Any) -> None:
    """A call that reads a number from a tensor and only computes with it (`x.clamp(0, t)`) gives no such number back.

    torch takes that for a mistake of the call's (`PendingUnbackedSymbolNotFound`, 2.11 to 2.15).
    """
    if env.pending_fresh_unbacked_symbols:
        symbolic = (x for x in concrete.leaves(result) if isinstance(x, (torch.Tensor, *py_sym_types)))
        shown = {s for x in symbolic for s in free_unbacked_symbols(x)}
        lost = [s for s in env.pending_fresh_unbacked_symbols if s not in shown]
        env.ignorable_fresh_unbacked_symbols.extend(lost)


@repair(
    "torch._dynamo.utils:run_node",
    scope="capture",
    phase="capture",
    kind="meaning",
    symptom="What a node asks about sizes is not known to be the node's.",
    cause="utils.py:run_node propagates a node without telling whose questions are asked.",
    cure="Its questions are written to the node, which is run concretely beside it where an answer is general.",
    goes="when torch records which node asked",
)
def run_node(tracer: Any, node: Any, args: Any, kwargs: Any, nnmodule: Any) -> Any:
    """Dynamo's propagation of one graph node, with its questions written to the node that asked them.

    Where a general answer is not the truth for the sizes at hand, the node is run concretely beside it; if the results
    differ, the node is traced again with true answers, which then are predicates of the program.
    """
    env = getattr(tracer, "shape_env", None)
    if not isinstance(env, FreeShapeEnv) or env.recording.node is not None:
        return _run_node(tracer, node, args, kwargs, nnmodule)
    recording = env.recording
    node.target = subscripts.rewritten(node.target, args)
    asked = (node.target, args, kwargs)
    args = conj_mutation.rewrite(node, args)
    record = NodeRecord(node.target if node.op in ("call_function", "call_method") else None)
    record.scalars = frozenset(
        x.node.expr for x in concrete.leaves((args, kwargs)) if isinstance(x, (torch.SymBool, torch.SymInt))
    )
    try:
        record.args, record.kwargs = concrete.snapshot((args, kwargs))
    except concrete.NotPlain:
        record.opaque = True
    record.opaque = record.opaque or record.call is None or _is_sealed(record.call)
    record.context = _ambient()
    record.strides_show = not recording.loose_strides
    recording.begin_node(record)
    try:
        result_dtypes.refuse(*asked)
        if node.target in _READ_THEIR_CHANNELS:
            _refuse_no_channels(*args, **kwargs)
        subscripts.require_in_bounds(node.target, args, kwargs)
        if memory.writes(node):
            _refuse_overlap(*memory.written_dims(node.target, args))
            _refuse_unwritable(recording, (args[:1], kwargs.get("out")))
        if node.target in (eager_transforms._autograd_grad, torch.autograd.grad) and len(args) <= _RETAIN_GRAPH:
            # A node may be run more than once. Of this one no more is verified here than that gradients are laid out as
            # what they are of: the calls that compute them are nodes of the aten graph.
            kwargs = {**kwargs, "retain_graph": True}
        given = [t for t in concrete.leaves((args, kwargs)) if isinstance(t, torch.Tensor)]

        def run() -> Any:
            for tensor in given:
                forget_answers(tensor)
            scatter_shape_checks.require(node.target, args, kwargs)
            index_reads.require(node.target, args, kwargs)
            checked_arithmetic.require(node.target, args)
            with unheard():  # it may be for stand-ins, or for answers that are given up again
                result = _run_node(tracer, node, args, kwargs, nnmodule)
            checked_arithmetic.require_of(node.target, result)
            return result

        try:
            result = _general(env, record, run)
        except Exception:
            if not recording.oblivious.loosened:
                raise
            recording.oblivious.strict = True  # a view that these strides allow, and most do not
            result = _general(env, record, run)
        _leave_what_is_read_inside(env, result)
        if recording.oblivious.choices:
            recording.oblivious.settle_choices(shows=_choices_show(env, record, result, run))
        record.loosened |= recording.oblivious.loosened and not recording.oblivious.strict
        if _may_be_a_view(recording, record):
            recording.unwritable.update(
                dict.fromkeys(memory.storages([result]) - memory.storages([args]), _COPY_OR_VIEW)
            )
        if record.name == "unfold":
            recording.unwritable.update(dict.fromkeys(memory.storages([result]), _WINDOWS))
        if record.decisions or record.loosened:
            record.step = node
            _remember_result(record, result)
            record.where = user_line() or ""
            recording.nodes.append(record)
        return result
    except Exception as error:
        recording.raised = type(error).__name__
        raise
    finally:
        recording.node = None
        recording.oblivious.strict = recording.oblivious.loosened = False


_RETAIN_GRAPH = 3  # the place of that argument
_call_method = TensorVariable.call_method
_ROOM = 1 << 62  # bytes, none of which a fake tensor has


@repair(
    "torch._dynamo.variables.tensor:TensorVariable.call_method",
    scope="capture",
    phase="capture",
    kind="meaning",
    symptom="`x.is_contiguous()` is taken for a question of the node that made x.",
    cause="Dynamo answers it from the fake tensor, and makes no node.",
    cure="It is asked anew, as a question of the function itself.",
    goes="when torch records who asked",
)
def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Dynamo's call of a method of a tensor; this one is a question of the function itself, and no node."""
    if name == "is_contiguous":
        forget_answers(self.proxy.node.meta.get("example_value"))
    return _call_method(self, tx, name, args, kwargs)


def _may_be_a_view(recording: Any, record: NodeRecord) -> bool:
    """Whether a call copies or does not by sizes that are born from data, so that no answer about them holds."""
    if record.name not in COPY_OR_VIEW or record.opaque or not record.args:
        return False
    given = record.args[0]
    numbers = (*given.sizes, *given.strides) if isinstance(given, concrete.TensorSnapshot) else ()
    return any(n.free_symbols and not recording.owns(n) for n in numbers)


_COPY_OR_VIEW = "what is written to is a copy for some numbers of results, and a view for others"
# Functionalization takes what no window has for 0 then (FunctionalInverses.cpp, `unfold_inverse`, 2.11 to 2.15).
_WINDOWS = "windows of a tensor (`unfold`) are written to"


def _refuse_unwritable(recording: Any, written: Any) -> None:
    for tensor in concrete.leaves(written):
        for storage in memory.storages([tensor]):
            why = recording.unwritable.get(storage)
            if why is not None and (why != _WINDOWS or tensor._is_view() or tensor.is_inference()):
                raise recording.retrace(why)


def _refuse_overlap(written: Any, dims: Sequence[int]) -> None:
    """Eager does not write to memory that overlaps itself; torch's fake kernels do (2.11 to 2.15)."""
    if isinstance(written, torch.Tensor) and written.layout is torch.strided:
        for dim in dims:
            stride = written.stride(dim)
            if type(stride) is int and stride == 0:
                several = lambda: "more than one element of the written-to tensor is at one place"
                torch._check(written.shape[dim] <= 1, several)


_READ_THEIR_CHANNELS = (F.batch_norm, torch.batch_norm, torch._batch_norm_impl_index)


def _refuse_no_channels(input: Any, *args: Any, **kwargs: Any) -> None:
    """The size of dim 1 is read without a look at how many dims there are (2.11 to 2.15).

    It is 0 in eager; what lies there for a fake tensor is taken for the address of a symbol, which ends the process.
    """
    if input.dim() < 2:
        unimplemented(
            gb_type="anyshape: batch_norm left to eager",
            context=f"a tensor of {input.dim()} dims",
            explanation="`batch_norm` runs eagerly: its input has no channels.",
            hints=["Give it a tensor of at least two dims, of which the second is the channels."],
        )


def _general(env: FreeShapeEnv, record: NodeRecord, run: Callable[[], Any]) -> Any:
    """Run a node with as few true answers as it takes to give what it really gives for the sizes at hand."""
    recording = env.recording

    def attempt(
        truths: frozenset[Any], *, from_two: bool = False, mixed: bool = True
    ) -> tuple[Any, Exception | None, bool]:
        record.forget()
        recording.begin_node(record, truths, from_two=from_two)
        with env.undo_unless_kept() as keep:
            try:
                with concrete.OpLog() as log:
                    result, error = run(), None
                record.log = log.calls
            except Exception as e:
                result, error = None, e
            holds = not recording.differing
            if recording.differing and error is None:
                _remember_result(record, result)
                holds = verify.differs(record, recording.hints) is None
                if not holds and recording.loose_strides and not recording.exact:
                    # Whether a copy in the place of a view shows is known at the end, and looked at again there.
                    record.sharing_shows = False
                    holds = record.loosened = verify.differs(record, recording.hints) is None
                    record.sharing_shows = True
            holds = holds and (mixed or not recording.mixes)
            if holds:
                record.settle(recording.hints)
                keep()
        return result, error, holds

    result, error, holds = attempt(frozenset(), mixed=False)
    if not holds and recording.mixes:  # answers that no size would give: those of all sizes from 2 on go first
        result, error, holds = attempt(frozenset(), from_two=True)
        if not holds:
            result, error, holds = attempt(frozenset())
    if holds:
        if error is not None:
            raise error
        return result
    # Sizes that are 0 or 1 and were asked about are the usual cause: find the few that matter.
    needed = recording.unit_questions()
    if needed and attempt(needed)[2]:
        for question in sorted(needed, key=str):
            if len(needed) > 1 and attempt(needed - {question})[2]:
                needed = needed - {question}
        result, error, _ = attempt(needed)
        if error is not None:
            raise error
        return result
    record.forget()
    recording.begin_node(record, None)
    with concrete.OpLog() as log:
        result = run()
    record.log = log.calls
    return result


def _choices_show(env: FreeShapeEnv, record: NodeRecord, result: Any, run: Callable[[], Any]) -> bool:
    """Whether a node is another one when what it asked about oblivious sizes is answered the other way round."""
    oblivious, log = env.recording.oblivious, record.log
    oblivious.otherwise = True
    try:
        with env.undo_unless_kept(), concrete.OpLog() as other:
            again = run()
        ours, theirs = concrete.snapshot(result), concrete.snapshot(again)
    except Exception:
        return True
    finally:
        oblivious.otherwise = False
    metadata = lambda tree: [
        dataclasses.replace(x, storage=0) if isinstance(x, concrete.TensorSnapshot) else x
        for x in concrete.leaves(tree)
    ]
    return metadata(ours) != metadata(theirs) or other.calls != log


def _remember_result(record: NodeRecord, result: Any) -> None:
    try:
        record.result = concrete.snapshot(result)
    except concrete.NotPlain:
        record.opaque = True


# Control flow, whose graphs are made of nodes that are verified themselves, and calls that write to their arguments, as
# functionalization wraps them: they run on fake tensors of any size.
_WRITES = ("auto_functionalized", "auto_functionalized_v2")
_OPEN = ("cond", "while_loop", "scan", "associative_scan", "map_impl", *_WRITES)


def _is_sealed(call: Any) -> bool:
    return isinstance(call, torch._ops.HigherOrderOperator) and call.name() not in _OPEN


def _ambient() -> Callable[[], Any] | None:
    """The autocast state, if there is one, to be entered again when the node is run at other sizes."""
    entered = [d for d in ("cpu", "cuda") if torch.is_autocast_enabled(d)]
    if not entered:
        return None
    return concrete.Ambient(tuple((d, torch.get_autocast_dtype(d)) for d in entered))


def aten_nodes(graph: Any, *, strides_show: bool) -> Iterator[NodeRecord]:
    """Every call of an aten graph whose metadata depends on a free size."""

    def value(node: Any) -> Any:
        if node.op == "get_attr" and isinstance(getattr(graph, node.target, None), torch.fx.GraphModule):
            return getattr(graph, node.target)  # what torch.cond is to run
        return node.meta.get("val")

    for node in graph.graph.nodes:
        if node.op != "call_function" or value(node) is None:
            continue
        target, result = node.target, value(node)
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), value)
        if getattr(target, "__name__", "") == "with_effects":
            # (token, op, *args) -> (token, *results)
            target, args, result = args[1], args[2:], list(result)[1:]
            result = result[0] if len(result) == 1 else result
        if not any(isinstance(x, torch.Tensor) for x in concrete.leaves(result)):
            continue
        if not _symbolic((args, kwargs, result)):
            continue
        # An aten graph is functional: what it shares between its values does not show.
        record = NodeRecord(target, opaque=_is_sealed(target), sharing_shows=False, strides_show=strides_show)
        record.where = _last_line(node.meta.get("stack_trace"))
        try:
            record.args, record.kwargs = concrete.snapshot((args, kwargs))
            record.result = concrete.snapshot_of_result(result)
        except concrete.NotPlain:
            record.opaque = True
        yield record


def _last_line(stack_trace: str | None) -> str:
    places = re.findall(r'File "(.+?)", line (\d+)', stack_trace or "")
    return ":".join(places[-1]) if places else ""


def _symbolic(tree: Any) -> bool:
    numbers: list[Any] = []
    for leaf in concrete.leaves(tree):
        numbers.extend(leaf.shape if isinstance(leaf, torch.Tensor) else [leaf])
    return any(isinstance(n, (torch.SymInt, torch.SymBool, torch.SymFloat)) for n in numbers)


def locate() -> tuple[str, str]:
    """Who asks: the user's line if the question comes from the traced program itself, else the framework's."""
    frame: types.FrameType | None = sys._getframe(1)
    framework = "?:0"
    user_asked = False
    while frame is not None:
        name = frame.f_code.co_filename
        if name.endswith("symbolic_convert.py"):
            user_asked = True
            break
        if name == __file__ and frame.f_code.co_name == "run_node":
            break
        if framework == "?:0" and "/torch/" in name and not name.endswith(_PASSING_ON):
            framework = f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    with contextlib.suppress(Exception):
        stack = TracingContext.extract_stack()
        if stack and user_asked and _OPS not in stack[-1].filename:
            return "user", f"{stack[-1].filename}:{stack[-1].lineno}"
    return "framework", framework


def in_a_kernel() -> bool:
    """Whether the fake kernel of one call asks, and not what makes calls: a formula of a gradient, a decomposition."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name not in ("__torch_dispatch__", "_engine_run_backward"):
        if frame.f_code.co_filename.endswith(METADATA):
            return True
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.endswith("fake_tensor.py")


def user_line() -> str | None:
    """The line of the user's that is being traced."""
    with contextlib.suppress(Exception):
        stack = [line for line in TracingContext.extract_stack() if not line.filename.startswith(_OWN)]
        # A module of torch's own is called from somewhere.
        stack = [line for line in stack if not line.filename.startswith(_TORCH)] or stack
        if stack:
            return f"{stack[-1].filename}:{stack[-1].lineno}"
    return None
