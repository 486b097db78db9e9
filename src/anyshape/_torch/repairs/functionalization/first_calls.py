"""The first call of a compiled graph, without AOTAutograd's dispatch mode for alias checks.

Owns one repair (torch 2.13 and 2.15): AOTAutograd makes it in a dispatch mode, to see whether operators that are not
torch's own share memory that they should not. Some of torch's own give other values in any such mode, `linalg.pinv` of
complex matrices is one: a graph that has none but those is called the first time as it is later.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import torch

from anyshape._torch.repairs.registry import repair

OWN = ("aten", "prim", "prims")
_others: contextvars.ContextVar[bool] = contextvars.ContextVar("operators that are not torch's own", default=False)


def note(graph: Any) -> None:
    """An aten graph is about to be compiled."""
    targets = {node.target for node in graph.graph.nodes if isinstance(node.target, torch._ops.OpOverload)}
    if any(target.namespace not in OWN for target in targets):
        _others.set(True)


@repair(
    "torch._functorch._aot_autograd.runtime_wrappers:_FirstInvocationContext.__init__",
    scope="compile",
    phase="run time",
    broken="2.13-2.15",
    symptom="The first call of `torch.linalg.pinv` of a complex matrix gives other values than the later ones.",
    cause="runtime_wrappers.py:_FirstInvocationContext makes the first call in a dispatch mode.",
    cure="A graph that has torch's own operators alone is called the first time as it is later.",
    goes="when values do not depend on a dispatch mode",
    absent="skip",
)
def init(stock: Any) -> Any:
    def looking(self: Any) -> None:
        stock(self)
        self._is_first = _others.get()

    return looking


@contextlib.contextmanager
def noted() -> Iterator[None]:
    """For what is compiled inside."""
    token = _others.set(False)
    try:
        yield
    finally:
        _others.reset(token)
