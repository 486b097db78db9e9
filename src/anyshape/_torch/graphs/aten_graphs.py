"""Aten graphs of AOTAutograd as values: calls, arguments, output aliases, for merging.

Owns how a graph that AOTAutograd hands to a backend is kept: its calls with their arguments by name, what each of them
gives, and what AOTAutograd does with the outputs afterwards. What is compared with what is told in `merging`.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import unset_fake_temporarily

from anyshape._torch.fake_runs import concrete
from anyshape.assumptions.answers import Ref

_MOST_ELEMENTS = 64  # of a constant that is kept by its values


@dataclasses.dataclass(frozen=True)
class AtenStep:
    """A node of an aten graph."""

    kind: str  # input | constant | number | call | part | output
    name: str  # of the operator with its overload; the source of an input
    args: Mapping[str, Any]  # by the names that the operator gives them, those left out too; nodes are `Ref`s
    result: Any  # a snapshot
    pure: bool = True  # gives the same whenever it is called, and does nothing else


@dataclasses.dataclass(frozen=True)
class AtenGraph:
    steps: tuple[AtenStep, ...]
    outputs: tuple[Any, ...]  # for each output of the wrapper, how it is made from those of the graph


class _NotTold(Exception):
    """Something that cannot be compared: a subgraph, a large constant."""


def remember(graph: Any, sources: Sequence[str]) -> AtenGraph | None:
    """An aten graph whose inputs have these sources; None where it cannot be compared with another."""
    told = getattr(TracingContext.try_get(), "fw_metadata", None)
    if told is None or any(i.mutates_data or i.mutates_metadata or i.mutates_storage_metadata for i in told.input_info):
        return None
    places = {node: index for index, node in enumerate(graph.graph.nodes)}
    inputs = graph.graph.find_nodes(op="placeholder")
    if len(inputs) != len(sources):
        return None
    named = dict(zip(inputs, sources, strict=True))
    try:
        steps = tuple(_step(graph, node, places, named) for node in places)
        return AtenGraph(steps, tuple(_output(info, sources) for info in told.output_info))
    except (_NotTold, concrete.NotPlain):
        return None


def _output(info: Any, sources: Sequence[str]) -> Any:
    kind = info.output_type.name
    base = info.base_idx
    of_input = base is not None and "input" in kind
    return kind, sources[base] if of_input else base, info.raw_type, info.requires_grad


def _step(graph: Any, node: Any, places: Mapping[Any, int], sources: Mapping[Any, str]) -> AtenStep:
    if node.op == "placeholder":
        return AtenStep("input", sources[node], {}, concrete.snapshot(_value(node)))
    if node.op == "get_attr":
        held = operator.attrgetter(node.target)(graph)
        return AtenStep("constant", _constant(held), {}, concrete.snapshot(_value(node)))
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: Ref(places[n]))
    if node.op == "output":
        return AtenStep("output", "", {"values": args[0]}, None)
    if node.op != "call_function":
        raise _NotTold(node.op)
    result = concrete.snapshot(_value(node))
    if node.target is operator.getitem:
        return AtenStep("part", "", {"of": args[0], "index": args[1]}, result)
    if isinstance(result, concrete.ScalarSnapshot):
        return AtenStep("number", str(node.target), {}, result)
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace not in ("aten", "prims"):
        raise _NotTold(str(node.target))
    return AtenStep("call", str(node.target), dict(_named(node.target, args, kwargs)), result, _is_pure(node.target))


def _value(node: Any) -> Any:
    if "val" not in node.meta and node.op != "call_function":
        raise _NotTold(node.name)
    return node.meta.get("val")


def _named(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for index, argument in enumerate(target._schema.arguments):
        if index < len(args):
            yield argument.name, args[index]
        elif argument.name in kwargs:
            yield argument.name, kwargs[argument.name]
        else:
            yield argument.name, argument.default_value


def _is_pure(target: Any) -> bool:
    checks = target._schema.name.startswith(("aten::_assert", "aten::sym_constrain"))
    seeded = torch.Tag.nondeterministic_seeded in target.tags
    return not (checks or seeded or target._schema.is_mutable)


def _constant(value: Any) -> str:
    plain = type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided
    if not plain or value.numel() > _MOST_ELEMENTS or value.device.type != "cpu":
        raise _NotTold("a constant")
    with unset_fake_temporarily():
        return f"{value.dtype} {tuple(value.shape)} {value.tolist()}"
