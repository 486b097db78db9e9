"""Outputs that alias inputs: eager's views instead of `as_strided` with a copy's strides.

Owns two repairs. AOTAutograd gives back an output that aliases a mutated input by `as_strided` with the strides of the
functionalized copy, and from the beginning of the memory. With symbolic strides or a symbolic offset that is not where
eager's view lies (wrong values on torch 2.11 to 2.15 with `dynamic=True` for `x.reshape(-1).add_(1)` on a strided `x`,
and for `x[2:].flatten().mul_(2)`; on a GPU, where an input may be copied for the alignment of its memory, for each view
of such a one); with static ones it replays the view and is right. And the gradient of `as_strided` is shared out among
elements of an input that lie at one place (`torch.ones(1).expand(2)`), where that of a view is not, and its strides are
of a copy that needs more memory than there is: there the views are made here, and not by the graph.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch

from anyshape._torch.fake_runs import concrete
from anyshape._torch.graphs import memory
from anyshape._torch.symbolic import python_code
from anyshape.assumptions.answers import Ref


@dataclasses.dataclass(frozen=True)
class Repair:
    """An output that is a view of an input: which of each, and its strides and offset as expressions."""

    position: int
    source: int
    numbers: tuple[sympy.Basic, ...]
    places: dict[Any, str]


@dataclasses.dataclass(frozen=True)
class Replay:
    """An output as the calls that make it of the inputs: of each the call, its arguments and keywords."""

    position: int
    steps: tuple[tuple[Any, Any, Any], ...]

    def __call__(self, args: Sequence[Any]) -> Any:
        values = list(args)
        for call, given, named in self.steps:
            value = lambda x: values[x.index] if isinstance(x, Ref) else x
            values.append(concrete.call(call, *concrete.map_leaves(value, (given, named))))
        return values[-1]


@dataclasses.dataclass(frozen=True)
class Restorer:
    """Wraps a compiled graph so that each aliasing output has eager's layout and gradient. It can be pickled."""

    repairs: tuple[Repair, ...]
    replays: tuple[Replay, ...] = ()

    def __call__(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        ready = [(r.position, r.source, python_code.function(r.numbers, r.places)) for r in self.repairs]

        def restore(args: Sequence[Any], results: Any) -> Any:
            changed = list(results)
            for position, source, evaluate in ready:
                *stride, start = evaluate(args)
                offset = args[source].storage_offset() + start
                result = changed[position]
                if isinstance(result, torch.Tensor) and _differs(result, stride, offset):
                    changed[position] = args[source].as_strided(result.shape, stride, offset)
            for replay in self.replays:
                changed[replay.position] = replay(args)
            return type(results)(changed) if isinstance(results, (tuple, list)) else changed

        return lambda *args: restore(args, compiled(*args))


def restorer(graph: Any) -> Restorer | None:
    """What gives each aliasing output eager's layout, or None if no output aliases an input.

    The graph no longer gives back those that are replayed.
    """
    nodes = list(graph.graph.nodes)
    inputs = [n for n in nodes if n.op == "placeholder"]
    value: Callable[[Any], Any] = lambda n: n.meta.get("example_value") if isinstance(n, torch.fx.Node) else None
    storages: dict[int, int] = {}
    places: dict[Any, str] = {}
    for i, node in enumerate(inputs):
        fake = value(node)
        if isinstance(fake, torch.Tensor) and fake.layout is torch.strided:
            storages.setdefault(concrete.storage(fake), i)
            numbers = [(n, f"v[{i}].shape[{j}]") for j, n in enumerate(fake.shape)]
            numbers += [(n, f"v[{i}].stride({j})") for j, n in enumerate(fake.stride())]
            for number, place in [*numbers, (fake.storage_offset(), f"v[{i}].storage_offset()")]:
                if isinstance(number, torch.SymInt) and number.node._expr.is_Symbol:
                    places.setdefault(number.node._expr, place)
        elif isinstance(fake, torch.SymInt) and fake.node._expr.is_Symbol:
            places.setdefault(fake.node._expr, f"v[{i}]")
    outputs = nodes[-1].args[0] if nodes and nodes[-1].op == "output" else ()
    repairs, replays = [], []
    for position, node in enumerate(outputs if isinstance(outputs, (tuple, list)) else ()):
        fake = value(node)
        if not isinstance(fake, torch.Tensor) or fake.layout is not torch.strided or node in inputs:
            continue
        source = storages.get(concrete.storage(fake))
        if source is None:
            continue
        replay = _replay(position, node, inputs, source)
        if replay is not None:
            replays.append(replay)
            continue
        # What is not written is replayed; an input that is captured without an offset may come with one later.
        symbolic = any(isinstance(s, torch.SymInt) for s in (*fake.shape, *fake.stride(), fake.storage_offset()))
        if not symbolic and value(inputs[source])._version == 0:
            continue
        # The offset counts from that of the input: an input that is no view was captured without one.
        base = value(inputs[source]).storage_offset()
        numbers = [concrete.number_expr(n) for n in (*fake.stride(), fake.storage_offset() - base)]
        if all(e.free_symbols <= places.keys() for e in numbers):
            repairs.append(Repair(position, source, tuple(numbers), places))
    if replays:
        made_here = {replay.position for replay in replays}
        nodes[-1].args = (type(outputs)(None if i in made_here else node for i, node in enumerate(outputs)),)
        graph.recompile()
    return Restorer(tuple(repairs), tuple(replays)) if repairs or replays else None


def _replay(position: int, output: Any, inputs: Sequence[Any], source: int) -> Replay | None:
    """The views that make an output of an input whose elements may lie at one place; None if there is no need."""
    fake = inputs[source].meta["example_value"]
    if fake._version > 0 or not (_may_overlap(fake) if fake.requires_grad else 0 in fake.stride()):
        return None
    own = concrete.storage(fake)
    places = {node: i for i, node in enumerate(inputs)}
    steps: list[tuple[Any, Any, Any]] = []
    for node in _ancestors(output):
        if node in places:
            continue
        plain = lambda v: (
            concrete.storage(v) == own if isinstance(v, torch.Tensor) else isinstance(v, (int, torch.SymInt))
        )
        if node.op not in ("call_function", "call_method") or memory.writes(node):
            return None
        if not all(map(plain, concrete.leaves(node.meta.get("example_value")))):
            return None
        refer = lambda n: Ref(places[n])
        steps.append((node.target, *torch.fx.node.map_arg((node.args, dict(node.kwargs)), refer)))
        places[node] = len(places)
    return Replay(position, tuple(steps))


def _ancestors(node: Any) -> list[Any]:
    """What a node is made of, and the node, in the order of the graph."""
    found = {node}
    for earlier in reversed(list(node.graph.nodes)):
        if earlier in found:
            found.update(earlier.all_input_nodes)
    return [n for n in node.graph.nodes if n in found]


def _may_overlap(tensor: torch.Tensor) -> bool:
    """Whether strides are 0, or anything else that sizes do not tell."""
    sizes: set[Any] = set().union(*(concrete.number_expr(n).free_symbols for n in tensor.shape))
    strides = [concrete.number_expr(n) for n in tensor.stride()]
    return any(s == 0 or not s.free_symbols <= sizes for s in strides)


def _differs(result: torch.Tensor, stride: Sequence[int], offset: int) -> bool:
    if result.numel() == 0:
        return False
    addressed = (a != b for n, a, b in zip(result.shape, result.stride(), stride, strict=True) if n > 1)
    return result.storage_offset() != offset or any(addressed)
