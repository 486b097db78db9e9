"""Copies that keep results apart.

Owns one repair: Inductor leaves out copies of no use (`remove_noop_ops`, fx_passes/post_grad.py, torch 2.11 to 2.15).
One between two results is of use, but which memory is a result's it asks once, before it leaves any out. Of
`b = a.clone(); c = b.clone()` it leaves out both, and `b` and `c` are one tensor. So are a buffer that `out=` wrote to,
which ends in a copy, and a clone of it. Such a result is copied after all.
"""

from __future__ import annotations

import contextlib
from typing import Any
from unittest import mock

import torch
import torch._inductor.fx_passes.post_grad as post_grad
from torch._inductor.fx_utils import get_node_storage

_stock = post_grad.remove_noop_ops


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
        copy = graph.call_function(torch.ops.aten.clone.default, (result,))
    copy.meta.update(result.meta | {"val": result.meta["val"].clone()})
    given = list(output.args[0])  # type: ignore[arg-type]
    given[place] = copy
    output.args = (type(output.args[0])(given),)  # type: ignore[call-arg,arg-type]


def patches() -> contextlib.AbstractContextManager[Any]:
    return mock.patch.object(post_grad, "remove_noop_ops", _remove_noop_ops)
