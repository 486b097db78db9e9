"""Reinplaced calls that read what they write: `index_put`, `copy_`, `mutate_to` and views of their targets.

Owns six repairs of Inductor (torch 2.11 to 2.15; the last three until 2.13). Where nobody reads a tensor after
`index_put`, it writes over it (fx_passes/reinplace.py), and does not ask whether the values are of the same memory:
`y.index_copy(0, i, y)` then reads what it has just written. Such a call keeps its copy. So does one whose result is
given back as a view (`v = x.index_put(i, 1)`, then `x += 1` and `return v[None]`): that has the memory of x, to which
something else is written in the end. And `copy_` (lowering.py)
computes what it stores first, but not where that is a view: of the target's own memory, as in
`y[1:] = y[:-1].clone()`, whose clone is left out as one of no use, or of something not computed yet, as in
`y[1:] = y[:-1] * 2` with sizes that have to be found equal. And what is written whole (`mutate_to`, lowering.py) is put
in the place of what was there, though a write to a part of that is still to come: `z = y.index_copy(0, i, v)` and then
`z[z > 0] = 1` writes the ones first. It is written there after it. So it is where what was there is read by name, by
views that are still to be computed: they would read what was put there. And a copy of a copy of an input is left out
(`remove_noop_ops`, fx_passes/post_grad.py), though the input is written to and the copy is of what it was. It stays.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch._inductor.lowering as inductor_lowering
from torch._inductor import ir
from torch._inductor.fx_utils import get_node_storage
from torch._inductor.virtualized import V
from torch.utils import _pytree as pytree

from anyshape._torch.repairs.registry import repair

aten = torch.ops.aten


def _is_read_too(node: torch.fx.Node) -> bool:
    leaves = pytree.tree_leaves((node.args, node.kwargs))
    written, *read = [get_node_storage(n) for n in leaves if isinstance(n, torch.fx.Node)]
    return written is not None and written in read


def _is_written_over(node: torch.fx.Node) -> bool:
    """Whether what is given back of a result would have the memory of an input that is written to after it."""
    written = node.args[0]
    assert isinstance(written, torch.fx.Node)
    copies = [u for u in written.users if u.target is aten.copy_.default and u.args[0] is written]
    given_back = [get_node_storage(n) for n in node.graph.output_node().all_input_nodes if n not in copies]
    return any(copy.args[1] is not node for copy in copies) and get_node_storage(node) in given_back


@repair(
    "torch._inductor.fx_passes.reinplace:inplaceable_ops[aten.index_put.default]",
    "torch._inductor.fx_passes.reinplace:inplaceable_ops[aten._unsafe_index_put.default]",
    scope="compile",
    phase="lowering",
    broken="2.11-2.15",
    symptom="`y.index_copy(0, i, y)` reads what it has just written.",
    cause="fx_passes/reinplace.py does not ask whose memory the values and the results are.",
    cure="Such a call keeps its copy.",
    goes="when reinplace.py compares the memory of all arguments and results",
    absent="skip",
)
def index_put(stock: Any) -> Any:
    check = stock.extra_check
    unread = lambda node: not _is_read_too(node) and not _is_written_over(node) and check(node)
    return dataclasses.replace(stock, extra_check=unread)


@repair(
    "torch._inductor.lowering:lowerings[aten.copy_.default]",
    scope="compile",
    phase="lowering",
    broken="2.11-2.15",
    symptom="`y[1:] = y[:-1].clone()` reads what it writes.",
    cause="lowering.py:copy_ computes what it stores first, but not where that is a view.",
    cure="What is read of the memory that is written is computed, and copied, before.",
    goes="when copy_ realizes views of its target",
)
def copy(stock: Callable[..., Any]) -> Callable[..., Any]:
    clone = inductor_lowering.lowerings[aten.clone.default]

    def copy_(dst: Any, src: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(src, ir.TensorBox) and isinstance(src.data, ir.BaseView):
            if isinstance(dst.data, ir.BaseView):
                dst.realize()
            written = dst.maybe_get_name()
            if written is not None and written in src.get_read_names():
                src.realize()
                if src.maybe_get_name() == written:
                    src = clone(src)
                    src.realize()
        return stock(dst, src, *args, **kwargs)

    return copy_


@repair(
    "torch._inductor.lowering:mutate_to",
    scope="compile",
    phase="lowering",
    broken="2.11-2.15",
    symptom="`z = y.index_copy(0, i, v)`, then `z[z > 0] = 1`: the ones are written first.",
    cause="lowering.py:mutate_to puts what is written whole in the place of what was there, to which writes wait.",
    cure="It is written there after them; so it is where what was there is read by name (2.11 and 2.13).",
    goes="when mutate_to looks at mutated_buffers",
)
def _mutate_to(stock: Callable[..., Any]) -> Callable[..., Any]:
    looks = "share_value" in inspect.signature(stock).parameters

    def has_readers(box: Any) -> bool:
        """Whether what is there has been computed, so that it may be read by name."""
        return not looks and ir.IRNode.is_realized_node(box.data) and not _is_empty(box.data)

    def mutate_to(changed: Any, val: Any, unsafe_alias: bool = False, **options: Any) -> Any:
        box = changed.data if isinstance(changed, ir.TensorBox) else changed
        if isinstance(box, ir.StorageBox) and (box.maybe_get_name() in V.graph.mutated_buffers or has_readers(box)):
            ir.MutationLayoutSHOULDREMOVE.realize_into(val, box, unsafe_alias=unsafe_alias)
            return changed
        return stock(changed, val, unsafe_alias, **options)

    return mutate_to


def _is_empty(buffer: Any) -> bool:
    return isinstance(buffer, ir.ComputedBuffer) and buffer.is_no_op()


@repair(
    "torch._inductor.fx_passes.post_grad:same_meta",
    scope="compile",
    phase="lowering",
    broken="2.11-2.13",
    symptom="A copy of what an input was is what was written to it later.",
    cause="fx_passes/post_grad.py:remove_noop_ops leaves out a copy of a copy of an input that is written to.",
    cure="It stays.",
    goes="with torch 2.13",
)
def _same_meta(stock: Callable[..., bool]) -> Callable[..., bool]:
    """Whether a call may be left out for what it is given: not a copy of memory that is written to."""

    def same_meta(node: torch.fx.Node, source: torch.fx.Node) -> bool:
        if node.target in (aten.clone.default, aten.copy.default):
            writes = node.graph.find_nodes(op="call_function", target=aten.copy_.default)
            if get_node_storage(source) in {get_node_storage(write.args[0]) for write in writes}:
                return False
        return stock(node, source)

    return same_meta
