"""Writes to scalars of 64 bits.

Owns one repair: a 0-dim float64 tensor is a number to Dynamo, too, and where it is captured anew with that number as a
constant, all calls are dropped that give it and whose results nobody reads (`remove_tensorify_specialized_graphargs`,
2.11 to 2.15): `x.mul_(2)` is one of them. Only inputs are dropped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from torch._dynamo.output_graph import OutputGraph

_NAME = "remove_tensorify_specialized_graphargs"
_VALUE = "example_value"


@contextlib.contextmanager
def patches() -> Iterator[None]:
    """For a capture."""
    stock = getattr(OutputGraph, _NAME, None)
    if stock is None:
        yield
        return

    def only_inputs(self: Any) -> None:
        calls = [node for node in self.graph.nodes if node.op != "placeholder" and _VALUE in node.meta]
        values = [node.meta.pop(_VALUE) for node in calls]
        try:
            stock(self)
        finally:
            for node, value in zip(calls, values, strict=True):
                node.meta[_VALUE] = value

    with mock.patch.object(OutputGraph, _NAME, only_inputs):
        yield
