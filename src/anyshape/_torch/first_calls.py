"""The first call of a compiled graph.

Owns one repair (torch 2.13 and 2.15): AOTAutograd makes it in a dispatch mode, to see whether operators that are not
torch's own share memory that they should not. Some of torch's own give other values in any such mode, `linalg.pinv` of
complex matrices is one: a graph that has none but those is called the first time as it is later.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import torch._functorch._aot_autograd.runtime_wrappers as runtime_wrappers

OWN = ("aten", "prim", "prims")
_others: contextvars.ContextVar[bool] = contextvars.ContextVar("operators that are not torch's own", default=False)


def note(graph: Any) -> None:
    """An aten graph is about to be compiled."""
    targets = {node.target for node in graph.graph.nodes if isinstance(node.target, torch._ops.OpOverload)}
    if any(target.namespace not in OWN for target in targets):
        _others.set(True)


@contextlib.contextmanager
def patches() -> Iterator[None]:
    looking = getattr(runtime_wrappers, "_FirstInvocationContext", None)
    if looking is None:
        yield
        return
    stock = looking.__init__

    def init(self: Any) -> None:
        stock(self)
        self._is_first = _others.get()

    token = _others.set(False)
    try:
        with mock.patch.object(looking, "__init__", init):
            yield
    finally:
        _others.reset(token)
