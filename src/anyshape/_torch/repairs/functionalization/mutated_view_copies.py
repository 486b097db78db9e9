"""Reshapes that copy in eager, of views of functionalized inputs with gaps in their storage.

Owns a repair of a captured graph (torch 2.11 to 2.15). AOTAutograd makes of `x.add_(1)` a new tensor without the gaps
that x has in memory, and of `x[1:]` after it a part of that. A `reshape` of the part is a view then, where eager
copies, and is given back as a view of x: it raises, or holds what lies in the gaps. What eager copies is copied.
"""

from __future__ import annotations

from typing import Any

import torch

from anyshape._torch.graphs import memory

_COPY_OR_VIEW = ("contiguous", "flatten", "ravel", "reshape", "reshape_as")


def keep(graph: Any) -> None:
    """Have copied first what a graph writes to, where a call may give a view and gave a copy of it."""
    calls = [n for name in _COPY_OR_VIEW for n in memory.calls(graph, name)]
    written = memory.written_storages(graph) if calls else set()
    changed = False
    for node in calls:
        source = node.args[0] if node.args else node.kwargs["input"]
        of_source = memory.storages([source.meta.get("example_value")])
        if of_source & written and of_source.isdisjoint(memory.storages([node.meta.get("example_value")])):
            with graph.graph.inserting_before(node):
                copied = graph.graph.call_method("clone", (source,), {"memory_format": torch.contiguous_format})
            copied.meta = {k: v for k, v in node.meta.items() if k != "example_value"}
            node.replace_input_with(source, copied)
            changed = True
    if changed:
        graph.recompile()
