"""`associative_scan` of any length as a loop in the graph, instead of a recursion by length.

Owns one rule: torch's generic `associative_scan` is a Python recursion that ends by the length, so a program of it
serves a few lengths only (torch 2.11 to 2.15). Here each round of a loop in the graph combines every element with the
one 1, 2, 4, ... places before it. The elements are combined in another order, which an associative function allows.

And one repair: when Dynamo has traced a loop into a graph, what is known of the attributes of objects is another object
than before, and the `__dict__` of an object that was looked at goes on with the old one (2.13): what is written there
afterwards is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo.variables.dicts as dicts
import torch.utils._pytree as pytree
from torch._higher_order_ops.associative_scan import generic_associative_scan as _recursive
from torch._higher_order_ops.while_loop import while_loop

from anyshape._torch.repairs.registry import repair


def generic_associative_scan(operator: Any, leaves: Any, dim: int = 0, additional_inputs: Any = ()) -> Any:
    if dim != 0 or (torch.is_grad_enabled() and any(x.requires_grad for x in leaves)):
        return _recursive(operator, leaves, dim, additional_inputs)  # a loop in a graph has no gradient everywhere
    length = leaves[0].shape[0]
    places = torch.arange(length, device=leaves[0].device)

    def goes_on(step: Any, *elements: Any) -> Any:
        return step < length

    def combine(step: Any, *elements: Any) -> Any:
        before = (places - step).clamp(min=0)
        combined = pytree.tree_leaves(
            operator(*[x.index_select(0, before) for x in elements], *elements, *additional_inputs)
        )
        reached = [(places >= step).view([-1] + [1] * (x.dim() - 1)) for x in elements]
        found = [torch.where(at, made, x) for at, made, x in zip(reached, combined, elements, strict=True)]
        return step * 2, *[_dense(x) for x in found]

    first = torch.ones((), dtype=torch.int64, device=leaves[0].device)
    return list(while_loop(goes_on, combine, (first, *[_dense(x) for x in leaves]))[1:])


def _dense(x: Any) -> Any:
    """What is carried from round to round has the same strides in each, those of a dim of one element too."""
    return torch.clone(x, memory_format=torch.contiguous_format)


def _written_to(self: Any) -> Any:
    return self._output_graph().side_effects


def _remember_graph(self: Any, side_effects: Any) -> None:
    self._output_graph = side_effects.output_graph_weakref


def _is_stale() -> bool:
    """It came after 2.11, and is right in 2.15."""
    proxy = getattr(dicts, "SideEffectsProxyDict", None)
    return proxy is not None and not hasattr(proxy, "side_effects")


@repair(
    "torch._dynamo.variables.dicts:SideEffectsProxyDict.side_effects",
    scope="capture",
    phase="capture",
    broken="2.13",
    symptom="What is written to an attribute after a loop in a graph is lost.",
    cause="variables/dicts.py:SideEffectsProxyDict goes on with the side effects from before the loop was traced.",
    cure="The attributes of an object are those that are known now.",
    goes="with torch 2.13",
    absent="skip",
    adds=True,
    needed=_is_stale,
)
def side_effects(stock: Any) -> Any:
    return property(_written_to, _remember_graph)


def rules() -> dict[Any, Callable[..., Any]]:
    """What stands in the place of torch's recursion."""
    return {_recursive: generic_associative_scan}
