"""The nodes of a Dynamo graph as steps that can be run again at other sizes.

Owns how a Dynamo graph is remembered as steps, each with its arguments by the step they come from, and whether the
program itself looks at strides. What the steps are run for is told in `unobservable_strides`.
"""

from __future__ import annotations

from typing import Any

import torch

from anyshape._torch.fake_runs import concrete
from anyshape._torch.repairs.registry import repair
from anyshape._torch.symbolic.shape_env import FreeShapeEnv
from anyshape.assumptions.answers import NodeRecord, Ref
from anyshape.assumptions.recording import Recording

# A step by itself does not know that autocast was entered, nor what a tensor was before it was changed in place.
_CHANGE_SHAPES = "t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_ as_strided_ resize_ resize_as_ set_"
_NOT_STEPS = ("_enter_autocast", *_CHANGE_SHAPES.split())
# What tells a program where its tensors lie, and is no node of the graph.
_READS = ("stride", "is_contiguous", "storage_offset", "data_ptr", "untyped_storage", "storage")


@repair(
    "torch._dynamo.variables.tensor:TensorVariable.call_method",
    scope="capture",
    phase="capture",
    kind="meaning",
    symptom="A program that looks at strides is taken for one that does not.",
    cause="Dynamo answers `x.stride()` with numbers, and leaves no node.",
    cure="While a capture runs, it is written down whether the program asks for strides.",
    goes="when Dynamo tells what a program read of a tensor",
    over=("deferred_calls.method",),
)
def call_method(stock: Any) -> Any:
    def watched(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        env = getattr(tx.output, "shape_env", None)
        if name in _READS and isinstance(env, FreeShapeEnv):
            env.recording.reads_strides = True
        return stock(self, tx, name, args, kwargs)

    return watched


def remember(graph: Any, recording: Recording) -> None:
    """The nodes of `graph` as steps; those that were recorded say which step they are."""
    places = {node: index for index, node in enumerate(graph.graph.nodes)}
    runs_in_steps = not any(getattr(n.target, "__name__", n.target) in _NOT_STEPS for n in places)
    recording.steps = [_step(node, places) for node in places] if runs_in_steps else []
    for record in recording.nodes:
        record.step = places.get(record.step) if recording.steps else None


def _step(node: Any, places: dict[Any, int]) -> NodeRecord:
    step = NodeRecord(node.target if node.op in ("call_function", "call_method") else None, sharing_shows=False)
    given = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: Ref(places[n]))
    try:
        step.args, step.kwargs = concrete.snapshot(given)
        step.result = concrete.snapshot(node.meta.get("example_value"))
    except concrete.NotPlain:
        step.opaque = True
        step.args, step.kwargs = given
    return step
