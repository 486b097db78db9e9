"""What verification can tell of other sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from anyshape import verify
from anyshape._torch import concrete
from anyshape.answers import NodeRecord

X, INDEX = torch.ones(4, 3), torch.tensor([0, 1])
aten = torch.ops.aten


def record(call: Any, *args: Any) -> NodeRecord:
    node = NodeRecord(call)
    node.args, node.kwargs = concrete.snapshot((args, {}))
    node.result = concrete.snapshot(call(*args))
    return node


@pytest.mark.parametrize(
    "node",
    [
        record(aten.index.Tensor, X, [INDEX]),
        record(aten.take.default, X, INDEX),
        record(aten.index_select.default, X, 0, INDEX),
        record(aten.embedding.default, X, INDEX),
    ],
    ids=lambda node: str(node.call),
)
def test_what_reads_at_indices_is_looked_at_for_each_size(node: NodeRecord) -> None:
    """Whether there is anything to read is not in the metadata."""
    assert verify.path(node, {}) is None


@pytest.mark.parametrize("node", [record(aten.sin.default, X), record(aten.index_fill.int_Scalar, X, 0, INDEX, 0)])
def test_others_hold_wherever_the_answers_do(node: NodeRecord) -> None:
    assert verify.path(node, {}) == []
