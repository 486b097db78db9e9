"""Aliases and mutations in a Dynamo graph: observable sharing of storage, mutated inputs.

Owns what can be read off a Dynamo graph about it: which nodes' sharing of memory anyone can see, and which inputs are
written to, so that a program made for inputs apart is not used for inputs that overlap.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch._C import _storage_address
from torch._dynamo.source import SyntheticLocalSource

from anyshape._torch.fake_runs import concrete
from anyshape._torch.graphs import subscripts
from anyshape.assumptions.answers import name_of
from anyshape.assumptions.recording import Recording

OPERATORS = {
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
_BY_METHOD = {f"__{call.__name__}__" for call in OPERATORS}
_SUBSCRIPTS = {operator.setitem, subscripts.setitem, "__setitem__"}
_WRITES = {*_SUBSCRIPTS, *OPERATORS, *_BY_METHOD}
_NOT_COMPUTED = {torch.Tag.inplace_view, torch.Tag.nondeterministic_seeded}


def mark_visible_sharing(graph: Any, recording: Recording) -> None:
    """Sharing between intermediates that are not written to and not given back is nobody's business."""
    value = lambda n: n.meta.get("example_value")
    nodes = list(graph.graph.nodes)
    recording.writes = any(writes(n) for n in nodes)
    written = written_storages(graph)
    inputs = storages(value(n) for n in nodes if n.op == "placeholder")
    given_back = storages(value(a) for n in nodes if n.op == "output" for a in n.all_input_nodes)
    guarded = [value(n) for n in nodes if n.op == "placeholder"] if torch.is_grad_enabled() else []
    leaves = storages(v for v in guarded if isinstance(v, torch.Tensor) and v.requires_grad)
    for record in recording.nodes:
        arguments, results = _record_storages(record.args, record.kwargs), _record_storages(record.result)
        reaches_out = bool((arguments | results) & given_back)
        record.sharing_shows = reaches_out and bool(arguments & (inputs | given_back))
        record.sharing_shows |= bool((arguments | results) & written)
        record.leaf_written = bool(results & written and arguments & leaves)


def calls(graph: Any, name: str) -> list[Any]:
    """The nodes of a graph that call a method, or torch's function, of this name."""
    by_name = graph.graph.find_nodes(op="call_method", target=name)
    call = getattr(torch, name, None)
    return [*by_name, *graph.graph.find_nodes(op="call_function", target=call)] if call is not None else list(by_name)


def written_storages(graph: Any) -> set[int]:
    """The memory that the nodes of a graph are given that write."""
    given = (a for n in graph.graph.nodes if writes(n) for a in n.all_input_nodes)
    return storages(a.meta.get("example_value") for a in given)


def written_inputs(graph: Any, versions: Mapping[int, int]) -> tuple[list[Any], list[Any]] | None:
    """The sources of inputs that are written to, and of those that are not; None if no two have to stay apart."""
    written: list[Any] = []
    read: list[Any] = []
    for node in graph.graph.nodes:
        value = node.meta.get("example_value")
        argument = node.meta.get("grapharg")
        # A number may be passed to the graph as a tensor; the caller has no memory of it.
        if node.op != "placeholder" or argument is None or not argument.is_tensor:
            continue
        if isinstance(argument.source, SyntheticLocalSource):  # made by the frame, before the graph
            continue
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            (written if value._version > versions.get(id(value), 0) else read).append(argument.source)
    return (written, read) if written and len(written) + len(read) > 1 else None


def share_memory(written: Sequence[torch.Tensor], read: Sequence[torch.Tensor]) -> bool:
    """Whether an input that is written to has its memory in common with another: asked at every call."""
    places = set(map(_storage_address, written))
    return len(places) < len(written) or not places.isdisjoint(map(_storage_address, read))


def writes(node: Any) -> bool:
    """Whether a node of a graph writes to what it is given."""
    if node.op not in ("call_method", "call_function"):
        return False
    return node.target in _WRITES or "out" in node.kwargs or _says_so(name_of(node.target))


def written_dims(call: Any, args: Any) -> tuple[Any, Sequence[int]]:
    """What a call writes to in place, and the dims of it along which it writes."""
    if not args or not isinstance(args[0], torch.Tensor):
        return None, ()
    tensor = args[0]
    if call in _SUBSCRIPTS:
        return tensor, subscripts.dims_left(tensor, args[1])
    in_place = call in _WRITES or _says_so(name_of(call))
    return tensor, range(tensor.dim()) if in_place else ()


def _says_so(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def computes(call: Any) -> bool:
    """Whether a call computes what it writes to its first argument: that is neither drawn, nor is it made a view."""
    if call in OPERATORS or call in _BY_METHOD:
        return True
    name = name_of(call)
    return (call is name or getattr(torch, name, None) is call) and _says_so(name) and _is_computed(name)


@functools.cache
def _is_computed(name: str) -> bool:
    packet = getattr(torch.ops.aten, name, None)
    if packet is None or name in ("copy_", "requires_grad_"):
        return False
    return all(_NOT_COMPUTED.isdisjoint(getattr(packet, overload).tags) for overload in packet.overloads())


def storages(values: Iterable[Any]) -> set[int]:
    tensors = [t for v in values for t in concrete.leaves(v) if isinstance(t, torch.Tensor)]
    return {concrete.storage(t) for t in tensors if t.layout is torch.strided}


def _record_storages(*trees: Any) -> set[int]:
    return {t.storage for t in concrete.leaves(trees) if isinstance(t, concrete.TensorSnapshot)}
