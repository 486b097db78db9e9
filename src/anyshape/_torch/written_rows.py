"""Rows of a tensor that are written to.

Owns one repair (torch 2.11 to 2.15): what is written to a part of `unbind` is written back by C++ that asks for plain
sizes (FunctionalInverses.cpp), which makes a program for each. In a captured graph such parts are selected, one by one.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from anyshape._torch import concrete, memory


def select(graph: Any) -> None:
    """Have the parts of `unbind` selected in a graph that writes to some of them."""
    calls = graph.graph.find_nodes(op="call_function", target=torch.unbind)
    calls += graph.graph.find_nodes(op="call_method", target="unbind")
    if not calls:
        return
    written = memory.written_storages(graph)
    for node in calls:
        parts = list(node.users)
        given = [t for t in concrete.leaves(node.meta.get("example_value")) if isinstance(t, torch.Tensor)]
        # Autograd does not let one of several views be written to; eager raises, and so does the call as it is.
        if written.isdisjoint(memory.storages(given)) or any(t.requires_grad for t in given):
            continue
        if any(part.target is not operator.getitem or type(part.args[1]) is not int for part in parts):
            continue
        source, dim = _arguments(*node.args, **node.kwargs)
        for part in parts:
            with graph.graph.inserting_before(part):
                selected = graph.graph.call_method("select", (source, dim, part.args[1]))
            selected.meta = part.meta
            part.replace_all_uses_with(selected)
            graph.graph.erase_node(part)
        graph.graph.erase_node(node)
        graph.recompile()


def _arguments(input: Any, dim: int = 0) -> tuple[Any, int]:
    return input, dim
