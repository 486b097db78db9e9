"""Copies that no-op elimination removes although they keep outputs and inputs apart.

Owns two repairs. Inductor leaves out copies of no use (`remove_noop_ops`, fx_passes/post_grad.py, torch 2.11 to 2.15).
One between two results is of use, but which memory is a result's it asks once, before it leaves any out. Of
`b = a.clone(); c = b.clone()` it leaves out both, and `b` and `c` are one tensor. So are a buffer that `out=` wrote to,
which ends in a copy, and a clone of it. Such a result is copied after all. And it leaves out sums with 0 and products
with 1 (`remove_no_ops`, fx_passes/joint_graph.py, torch 2.11 to 2.15), and gives back the input itself for
`x + torch.zeros_like(x)`, in 2.15 for `x * 1` too: who writes to the result writes to the input. That is a copy.
"""

from __future__ import annotations

from typing import Any

import torch
import torch._inductor.fx_passes.joint_graph as joint_graph
import torch._inductor.fx_passes.post_grad as post_grad
from torch._inductor.fx_utils import get_node_storage

from anyshape._torch.repairs.registry import repair

aten = torch.ops.aten
_MAY_BE_LEFT_OUT = (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor)
_stock = post_grad.remove_noop_ops
_stock_no_ops = joint_graph.remove_no_ops


@repair(
    "torch._inductor.fx_passes.post_grad:remove_noop_ops",
    scope="compile",
    phase="lowering",
    broken="2.11-2.15",
    symptom="Of `b = a.clone(); c = b.clone()` the results b and c are one tensor.",
    cause="fx_passes/post_grad.py:remove_noop_ops asks which memory is a result's once, before it leaves any copy out.",
    cure="A result that would share the memory of another is copied after all.",
    goes="when remove_noop_ops looks again after each copy that it leaves out",
)
def _remove_noop_ops(graph: torch.fx.Graph) -> None:
    lay = {node: get_node_storage(node) for node in graph.nodes}
    copied = {node: of for node in lay if (of := _copied(node, lay)) is not None}
    before = [lay.get(result) for result in _results(graph)]
    _stock(graph)
    left_out = copied.keys() - set(graph.nodes)
    moved = {lay[node]: copied[node] for node in left_out}
    owners: dict[Any, Any] = {}  # by the memory that a result has now: the memory that it had
    for i, (result, had) in enumerate(zip(_results(graph), before, strict=True)):
        has = had
        while has in moved:
            has = moved[has]
        if has is not None and owners.setdefault(has, had) != had:
            _copy(graph, i, result)


@repair(
    "torch._inductor.fx_passes.joint_graph:remove_no_ops",
    scope="compile",
    phase="lowering",
    broken="2.11-2.15",
    symptom="`x + torch.zeros_like(x)` gives back x itself: who writes to the result writes to the input.",
    cause="fx_passes/joint_graph.py:remove_no_ops puts the operand in the place of a sum with 0 or a product with 1.",
    cure="A result of such a call is a copy.",
    goes="when remove_no_ops leaves results apart from inputs",
)
def _remove_no_ops(gm: torch.fx.GraphModule, zeros: Any, ones: Any) -> None:
    results = {get_node_storage(n) for n in _results(gm.graph) if isinstance(n, torch.fx.Node)} - {None}
    for node in [n for n in gm.graph.nodes if n.target in _MAY_BE_LEFT_OUT and get_node_storage(n) in results]:
        if any(a in zeros or a in ones or a in (0, 1) for a in node.args):
            _keep(node)
    _stock_no_ops(gm, zeros, ones)


def _keep(node: torch.fx.Node) -> None:
    """A copy of `node` is used in its place, and has the memory that views of it are noted to have."""
    with node.graph.inserting_after(node):
        copy = node.graph.call_function(aten.clone.default, (node,))
    node.replace_all_uses_with(copy, delete_user_cb=lambda user: user is not copy)
    copy.meta.update(node.meta)
    node.meta["val"] = copy.meta["val"].clone()


def _results(graph: torch.fx.Graph) -> list[Any]:
    given = graph.output_node().args[0]
    return list(given) if isinstance(given, (list, tuple)) else [given]


def _copied(node: torch.fx.Node, lay: dict[Any, Any]) -> Any:
    """The memory that a node would have if it were left out; None for a view."""
    sources = [lay[n] for n in node.all_input_nodes if lay[n] is not None]
    return sources[-1] if sources and lay[node] not in (None, sources[-1]) else None


def _copy(graph: torch.fx.Graph, place: int, result: torch.fx.Node) -> None:
    output = graph.output_node()
    with graph.inserting_before(output):
        copy = graph.call_function(aten.clone.default, (result,))
    copy.meta.update(result.meta | {"val": result.meta["val"].clone()})
    given = list(output.args[0])  # type: ignore[arg-type]
    given[place] = copy
    output.args = (type(output.args[0])(given),)  # type: ignore[call-arg,arg-type]
