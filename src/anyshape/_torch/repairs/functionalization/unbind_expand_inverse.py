"""Mutation through `unbind` and `expand` views, without their C++ inverses.

Owns two repairs of a captured graph (torch 2.11 to 2.15, FunctionalInverses.cpp). What is written to a part of `unbind`
is written back by C++ that asks for plain sizes, which makes a program for each: such parts are selected, one by one.
And what is written to an expanded tensor is written back as a difference that is added: 3 over 1e20 is 0, and over
infinity NaN. A tensor that is expanded to its own sizes is itself, and one of the rows that are one row is that row.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from anyshape._torch.fake_runs import concrete
from anyshape._torch.graphs import memory, subscripts

_EXPANDS = ("expand", "expand_as", "broadcast_to")


def select(graph: Any) -> None:
    """Have rows selected that a graph writes to."""
    unbound = memory.calls(graph, "unbind")
    expanded = [node for name in _EXPANDS for node in memory.calls(graph, name)]
    if not unbound and not expanded:
        return
    written = memory.written_storages(graph)
    if not written:
        return
    # Autograd does not let one of several views be written to; eager raises, and so does the call as it is.
    parts = [node for node in unbound if not any(t.requires_grad for t in _tensors(node))]
    for node in parts:
        if not written.isdisjoint(memory.storages(_tensors(node))):
            _select_parts(graph.graph, node)
    for node in expanded:
        if not written.isdisjoint(memory.storages(_tensors(node))):
            _leave_out(graph.graph, node)
    graph.recompile()


def _tensors(node: Any) -> list[torch.Tensor]:
    return [t for t in concrete.leaves(_value(node)) if isinstance(t, torch.Tensor)]


def _value(node: Any) -> Any:
    return node.meta.get("example_value") if isinstance(node, torch.fx.Node) else node


def _select_parts(graph: Any, node: Any) -> None:
    parts = list(node.users)
    if any(part.target is not operator.getitem or type(part.args[1]) is not int for part in parts):
        return
    source, dim = _arguments(*node.args, **node.kwargs)
    for part in parts:
        with graph.inserting_before(part):
            selected = graph.call_method("select", (source, dim, part.args[1]))
        _replace(graph, part, selected)
    graph.erase_node(node)


def _arguments(input: Any, dim: int = 0) -> tuple[Any, int]:
    return input, dim


def _leave_out(graph: Any, node: Any) -> None:
    """Have what an expanded tensor is made of written to and read in its place, where that is the same."""
    source = node.args[0] if node.args else node.kwargs["input"]
    whole, rows = _value(source), _value(node)
    if _exprs(whole) == _exprs(rows):
        with graph.inserting_before(node):
            _replace(graph, node, graph.call_function(torch.ops.aten.alias.default, (source,)))
        return
    for user in list(node.users):
        if subscripts.takes_key(user.target) and user.args[0] is node:
            key = _key_of_row(whole, rows, user.args[1])
            user.args = user.args if key is None else (source, key, *user.args[2:])


def _key_of_row(whole: torch.Tensor, rows: torch.Tensor, key: Any) -> tuple[Any, ...] | None:
    """The key by which a tensor has what one has of its rows by another; None where several rows are chosen."""
    parts = subscripts.key_parts(key)
    new = rows.dim() - whole.dim()
    one_row = {dim for dim in range(rows.dim()) if dim < new or _exprs(whole)[dim - new] != _exprs(rows)[dim]}
    found = {dim: place for place, dim, _ in subscripts.numbers_of(rows, tuple(map(_value, parts))) if dim in one_row}
    if found.keys() != one_row:
        return None
    gone = {place for dim, place in found.items() if dim < new}
    first = set(found.values()) - gone
    kept = [0 if place in first else part for place, part in enumerate(parts) if place not in gone]
    return tuple(kept) or (...,)


def _exprs(tensor: torch.Tensor) -> list[Any]:
    return [concrete.number_expr(size) for size in tensor.shape]


def _replace(graph: Any, node: Any, by: Any) -> None:
    by.meta = node.meta
    node.replace_all_uses_with(by)
    graph.erase_node(node)
