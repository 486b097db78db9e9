"""In-place calls on 0-dim 64-bit inputs that tensorify drops after a restart.

Owns one repair: a 0-dim float64 tensor is a number to Dynamo, too, and where it is captured anew with that number as a
constant, all calls are dropped that give it and whose results nobody reads (`remove_tensorify_specialized_graphargs`,
2.11 to 2.15): `x.mul_(2)` is one of them. Only inputs are dropped.
"""

from __future__ import annotations

from typing import Any

from anyshape._torch.repairs.registry import repair

_VALUE = "example_value"


@repair(
    "torch._dynamo.output_graph:OutputGraph.remove_tensorify_specialized_graphargs",
    scope="capture",
    phase="capture",
    broken="2.11-2.15",
    symptom="`x.mul_(2)` of a 0-dim float64 tensor is dropped.",
    cause="output_graph.py:remove_tensorify_specialized_graphargs drops calls that nobody reads.",
    cure="Only inputs are dropped.",
    goes="when it looks at placeholders alone",
    absent="skip",
)
def remove_specialized(stock: Any) -> Any:
    def only_inputs(self: Any) -> None:
        calls = [node for node in self.graph.nodes if node.op != "placeholder" and _VALUE in node.meta]
        values = [node.meta.pop(_VALUE) for node in calls]
        try:
            stock(self)
        finally:
            for node, value in zip(calls, values, strict=True):
                node.meta[_VALUE] = value

    return only_inputs
