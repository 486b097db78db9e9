"""Memory that a captured graph shares and writes to.

Owns what can be read off a Dynamo graph about it: which nodes' sharing of memory anyone can see, and which inputs are
written to, so that a program made for inputs apart is not used for inputs that overlap.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch._C import _storage_address

from anyshape._torch import concrete, subscripts
from anyshape.recording import Recording

_WRITES = {
    operator.setitem,
    subscripts.setitem,
    operator.iadd,
    operator.isub,
    operator.imul,
    operator.itruediv,
    operator.ifloordiv,
    operator.imod,
    operator.ipow,
    operator.iand,
    operator.ior,
    operator.ixor,
}


def mark_visible_sharing(graph: Any, recording: Recording) -> None:
    """Sharing between intermediates that are not written to and not given back is nobody's business."""
    value = lambda n: n.meta.get("example_value")
    nodes = list(graph.graph.nodes)
    recording.writes = any(writes(n) for n in nodes)
    written = _storages(value(a) for n in nodes if writes(n) for a in n.all_input_nodes)
    inputs = _storages(value(n) for n in nodes if n.op == "placeholder")
    given_back = _storages(value(a) for n in nodes if n.op == "output" for a in n.all_input_nodes)
    guarded = [value(n) for n in nodes if n.op == "placeholder"] if torch.is_grad_enabled() else []
    leaves = _storages(v for v in guarded if isinstance(v, torch.Tensor) and v.requires_grad)
    for record in recording.nodes:
        arguments, results = _record_storages(record.args, record.kwargs), _record_storages(record.result)
        reaches_out = bool((arguments | results) & given_back)
        record.sharing_shows = reaches_out and bool(arguments & (inputs | given_back))
        record.sharing_shows |= bool((arguments | results) & written)
        record.leaf_written = bool(results & written and arguments & leaves)


def written_inputs(graph: Any) -> tuple[list[Any], list[Any]] | None:
    """The sources of inputs that are written to, and of those that are not; None if no two have to stay apart."""
    written: list[Any] = []
    read: list[Any] = []
    for node in graph.graph.nodes:
        value = node.meta.get("example_value")
        argument = node.meta.get("grapharg")
        # A number may be passed to the graph as a tensor; the caller has no memory of it.
        if node.op != "placeholder" or argument is None or not argument.is_tensor:
            continue
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            (written if value._version > 0 else read).append(argument.source)
    return (written, read) if written and len(written) + len(read) > 1 else None


def share_memory(written: Sequence[torch.Tensor], read: Sequence[torch.Tensor]) -> bool:
    """Whether an input that is written to has its memory in common with another: asked at every call."""
    places = set(map(_storage_address, written))
    return len(places) < len(written) or not places.isdisjoint(map(_storage_address, read))


def writes(node: Any) -> bool:
    """Whether a node of a graph writes to what it is given."""
    if node.op == "call_method":
        return node.target.endswith("_") and not node.target.endswith("__")
    if node.op != "call_function":
        return False
    name = getattr(node.target, "__name__", "")
    return node.target in _WRITES or "out" in node.kwargs or (name.endswith("_") and not name.endswith("__"))


def _storages(values: Iterable[Any]) -> set[int]:
    tensors = [t for v in values for t in concrete.leaves(v) if isinstance(t, torch.Tensor)]
    return {concrete.storage(t) for t in tensors if t.layout is torch.strided}


def _record_storages(*trees: Any) -> set[int]:
    return {t.storage for t in concrete.leaves(trees) if isinstance(t, concrete.TensorSnapshot)}
