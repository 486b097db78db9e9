"""Aten graphs of inputs with unknown strides, made independent of the traced ones.

Owns what such a graph needs before it is compiled: no step of it may rely on strides that were only traced. What
Inductor generates follows the strides it was told; a kernel that is called as it is, and a graph that is run op by op,
follow those they are given.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
import torch._inductor.lowering as inductor_lowering
from torch._subclasses.fake_tensor import FakeTensor

from anyshape.assumptions.recording import Recording

_aten = torch.ops.aten
# Lowered for some sizes, called as they are for others.
_SOMETIMES_CALLED = {_aten.sort.default, _aten.sort.stable, _aten.topk.default, _aten.median.dim, _aten.mode.default}


def prepare(graph: Any, recording: Recording) -> None:
    """Views of values become copies where they must, and kernels that are called as they are get contiguous inputs."""
    called = _SOMETIMES_CALLED | set(getattr(inductor_lowering, "fallbacks", ()))
    for node in list(graph.graph.nodes):
        if node.op != "call_function":
            continue
        if node.target is _aten.view.default:
            node.target = _aten.reshape.default
        elif node.target in called:
            for argument in node.all_input_nodes:
                if _is_loose(argument.meta.get("val"), recording):
                    _put_copy_before(graph, node, argument)
    graph.recompile()


def views_may_copy(graph: Any) -> None:
    """Where kernels are called one by one, a view takes what they give, which is not always what their fakes do.

    `native_dropout_backward` on the CPU follows the strides of the gradient, its fake is contiguous (torch 2.11 to
    2.15); stock's aot_eager fails at the view that comes after it.
    """
    for node in graph.graph.find_nodes(op="call_function", target=_aten.view.default):
        node.target = _aten.reshape.default
    graph.recompile()


def contiguous_inputs(graph: Any, inputs: Sequence[Any], recording: Recording) -> tuple[list[Any], list[int]]:
    """The inputs of a Dynamo graph with the strides of contiguous ones, and the positions of those that may be any."""
    made, positions = list(inputs), []
    for i, node in enumerate(graph.graph.find_nodes(op="placeholder")):
        value = node.meta.get("example_value")
        if not _is_loose(value, recording) or type(value) is not FakeTensor:
            continue
        strides, step = [], 1
        for size in reversed(value.shape):
            strides.append(step)
            step = step * size
        with value.fake_mode, torch.no_grad():
            plain = torch.empty_strided(value.shape, strides[::-1], dtype=value.dtype, device=value.device)
        made[i] = plain.requires_grad_(value.requires_grad)
        positions.append(i)
    return made, positions


def twin(graph: Any) -> Any:
    """The same graph once more, to be compiled a second time."""
    made = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
    made.meta = dict(graph.meta)
    return made


def _is_loose(value: Any, recording: Recording) -> bool:
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    strides = [n.node.expr for n in value.stride() if isinstance(n, torch.SymInt)]
    return any(not recording.loose_strides.isdisjoint(s.free_symbols) for s in strides)


def _put_copy_before(graph: Any, node: Any, argument: Any) -> None:
    contiguous = {"memory_format": torch.contiguous_format}
    with graph.graph.inserting_before(node):
        copy = graph.graph.call_function(_aten.clone.default, (argument,), contiguous)
    with argument.meta["val"].fake_mode:
        copy.meta["val"] = _aten.clone.default(argument.meta["val"], **contiguous)
    node.replace_input_with(argument, copy)
