"""Strides of outputs: those of the traced calls, kept through decompositions and lowering.

Owns four repairs. Inductor gives an output the strides that its decompositions give it, and some lose those that the
call itself has: `roll` and `hstack([x, x])` of a channels-last image come out contiguous (torch 2.13 and 2.15). What
was captured knows the strides of the calls. And it lays out as it likes what has strides out of the data (`nonzero` is
transposed, and so is `nonzero() + 1`), and what is no output itself, perhaps as a part of what it is joined to: outputs
that are views of it have other strides then, and several need copies and do not share memory as they do in eager. And
such a view is copied where its order cannot be proved, as `x.sin()[:, ::2]` is (torch 2.13).
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch._inductor.graph as inductor_graph
import torch.compiler.config as compiler_config
from torch._functorch._aot_autograd.descriptors import ForwardTokenAOTOutput, PlainAOTOutput
from torch._functorch._aot_autograd.schemas import OutputType
from torch._guards import TracingContext
from torch._inductor import ir
from torch._inductor.fx_utils import get_node_storage
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from anyshape import _version
from anyshape._torch.fake_runs import concrete
from anyshape._torch.repairs.registry import repair
from anyshape._torch.symbolic.shape_env import FreeShapeEnv

Layout = tuple[Sequence[Any], Sequence[Any]]  # sizes and strides
Layouts = Sequence[Layout | None]  # for each output; None where it is no tensor or has no strides to keep

_ITS_OWN = (OutputType.non_alias, OutputType.unsafe_view_alias)
_captured: contextvars.ContextVar[Layouts] = contextvars.ContextVar("the layouts that outputs have", default=())
_stock = inductor_graph.get_user_visible_output_strides
_stock_run_node = inductor_graph.GraphLowering.run_node
_LAID_OUT = "anyshape: the strides to lay it out by"


def of(graph: Any) -> Layouts:
    """The layouts with which a graph was captured."""
    (output,) = graph.graph.find_nodes(op="output")
    values = [n.meta.get("example_value") if isinstance(n, torch.fx.Node) else None for n in output.args[0]]
    return [_layout(v) if isinstance(v, torch.Tensor) and v.layout == torch.strided else None for v in values]


def _layout(value: torch.Tensor) -> Layout | None:
    return None if free_unbacked_symbols(value.stride()) else (tuple(value.shape), value.stride())


@contextlib.contextmanager
def kept(layouts: Layouts, number: Callable[[Any], Any] = lambda n: n) -> Iterator[None]:
    """While a graph is compiled that was captured with them; `number` tells what one is in its own sizes, or None."""
    known: list[Layout | None] = []
    for layout in layouts:
        own = None if layout is None else ([number(n) for n in layout[0]], [number(n) for n in layout[1]])
        known.append(None if own is None or None in (*own[0], *own[1]) else own)
    token = _captured.set(known)
    try:
        # Code is found in Inductor's cache by its graph and by this; stock torch's is another.
        with compiler_config.patch(cache_key_tag=f"{compiler_config.cache_key_tag} anyshape {_version.code()} {known}"):
            yield
    finally:
        _captured.reset(token)


@repair(
    "torch._inductor.graph:get_user_visible_output_strides",
    scope="compile",
    phase="lowering",
    broken="2.11-2.15",
    symptom="`roll` and `hstack([x, x])` of a channels-last image come out contiguous.",
    cause="graph.py:get_user_visible_output_strides has the strides of decompositions, not of the calls.",
    cure="Outputs with memory of their own get the strides with which they were captured.",
    goes="when decompositions keep the strides of the calls that they stand for",
)
def _visible(graph: Any) -> dict[Any, Any]:
    """As torch's, with the captured strides for outputs that have memory of their own."""
    made = dict(_stock(graph))
    _mark_bases(graph)
    captured = _captured.get()
    told = getattr(TracingContext.try_get(), "fw_metadata", None)
    (output,) = graph.find_nodes(op="output")
    # Tokens of calls that have effects are told too, and are not there any more.
    plain = [d for d in output.meta.get("desc") or () if not isinstance(d, ForwardTokenAOTOutput)]
    if told is None or len(plain) != len(output.args[0]):
        return made
    for node, desc in zip(output.args[0], plain, strict=True):
        if node not in made or not isinstance(desc, PlainAOTOutput) or desc.idx >= len(captured):
            continue
        layout = captured[desc.idx]
        if layout is None or told.output_info[desc.idx].output_type not in _ITS_OWN:
            continue
        sizes, strides = layout
        if len(sizes) == len(own := node.meta["val"].shape) and all(map(_agree, sizes, own)):
            made[node] = tuple(strides)
    return made


def _exprs(numbers: Sequence[Any]) -> list[Any]:
    return [concrete.number_expr(n) for n in numbers]


def _agree(size: Any, own: Any) -> bool:
    """Whether two say the same size, which simplifications may have written in two ways."""
    at_hand = [getattr(getattr(n, "node", None), "hint", n) for n in (size, own)]
    return concrete.number_expr(size) == concrete.number_expr(own) or (at_hand[0] == at_hand[1] and None not in at_hand)


def _mark_bases(graph: Any) -> None:
    """Nodes are told their strides if outputs are views of them, or if they have strides out of the data that show."""
    (output,) = graph.find_nodes(op="output")
    results = {node for node in output.args[0] if isinstance(node, torch.fx.Node)}
    lying = collections.Counter(get_node_storage(node) for node in results)
    for node in graph.nodes:
        lies = get_node_storage(node)
        views = 0 if lies is None else lying.pop(lies, 0)  # popped: what comes later is a view of it
        if lies is None or node.op != "call_function":
            continue
        strides = _exprs(node.meta["val"].stride())
        if free_unbacked_symbols(strides):
            is_marked = views > 0 or (strides[-1] != 1 and any(map(_may_see_strides, node.users)))
        else:
            is_marked = views > 0 and node not in results
        if is_marked:
            node.meta[_LAID_OUT] = strides


def _may_see_strides(node: torch.fx.Node) -> bool:
    """Whether a call may be eager's own kernel, which lays out its results as its operands lie."""
    return torch.Tag.pointwise not in getattr(node.target, "tags", ())


@repair(
    "torch._inductor.graph:GraphLowering.run_node",
    scope="compile",
    phase="lowering",
    broken="2.11-2.15",
    symptom="Views of one result have other strides than in eager, and do not share memory.",
    cause="ir.py lays out as it likes what is no output itself, and what has strides out of the data.",
    cure="What outputs are views of is laid out as it was captured.",
    goes="when Inductor keeps the layout of what outputs are views of",
)
def _run_node(self: Any, node: torch.fx.Node) -> Any:
    result = _stock_run_node(self, node)
    strides = node.meta.get(_LAID_OUT)
    if strides is not None and isinstance(result, ir.TensorBox) and isinstance(result.data, ir.StorageBox):
        result.realize()
        buffer = result.data.data
        if isinstance(buffer, ir.Buffer) and isinstance(buffer.get_layout(), ir.FlexibleLayout):
            buffer.freeze_layout_with_exact_strides(strides)
    return result


_stock_order = ir.ExternKernel.require_stride_order.__func__  # type: ignore[attr-defined]
_stock_stride_order = ir.get_stride_order


@repair(
    "torch._inductor.ir:get_stride_order",
    scope="compile",
    phase="lowering",
    kind="meaning",
    symptom="Programs split by the order of an output's strides where nothing has to be done for it.",
    cause="graph.py:run_node asks for the order before it knows whether the output lies in it.",
    cure="The order of an output's strides is asked for off the record.",
    goes="when the order is asked for where something is laid out by it",
)
def _stride_order(strides: Any, *rest: Any) -> Any:
    """The order of an output's strides is asked for before it is known whether anything has to be done for it."""
    if not isinstance(V.graph, inductor_graph.GraphLowering):  # `torch.cond` asks too, while it is traced
        return _stock_stride_order(strides, *rest)
    env = V.graph.sizevars.shape_env
    if isinstance(env, FreeShapeEnv) and V.graph.user_visible_output_strides.get(V.graph.current_node) is strides:
        with env.recording.off_the_record():
            return _stock_stride_order(strides, *rest)
    return _stock_stride_order(strides, *rest)


@repair(
    "torch._inductor.ir:ExternKernel.require_stride_order",
    scope="compile",
    phase="lowering",
    broken="2.13",
    symptom="`x.sin()[:, ::2]` is a copy of its own, and no view of the sine that is returned too.",
    cause="ir.py:ExternKernel.require_stride_order copies what cannot be proved to lie in an order.",
    cure="What has the strides of the output is left as it lies.",
    goes="when equal strides need no proof of their order",
)
def _require_stride_order(stock: Any) -> Any:
    return classmethod(_in_order)


def _in_order(cls: Any, x: Any, order: Any, allow_padding: bool = False) -> Any:
    """What has the strides of the output lies in their order, which cannot be proved where a size may be 0 or 1."""
    wanted = V.graph.user_visible_output_strides.get(V.graph.current_node)
    is_free = wanted is not None and isinstance(V.graph.sizevars.shape_env, FreeShapeEnv)
    if is_free and list(order) == list(_stride_order(wanted)):
        layout = x.maybe_get_layout()
        if isinstance(layout, ir.FixedLayout) and _exprs(layout.stride) == _exprs(wanted):
            return x
        order = _stock_stride_order(wanted)  # for the record: code is made for this order
    return _stock_order(cls, x, order, allow_padding=allow_padding)
