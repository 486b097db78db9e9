"""What calls read at indices, and when there is nothing to read."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from anyshape._torch.fake_runs import index_reads

aten = torch.ops.aten
NONE, TWO, ZERO = torch.zeros(0, dtype=torch.long), torch.tensor([0, 0]), torch.tensor([0])
TABLE, NO_ROWS, NO_COLUMNS = torch.ones(3, 2), torch.ones(0, 2), torch.ones(3, 0)

# Each call with a tensor to read from, the indices, and whatever else it takes.
CALLS: dict[str, Any] = {
    "F.embedding": (F.embedding, lambda x, i: ((i, x), {})),
    "F.embedding by name": (F.embedding, lambda x, i: ((), {"weight": x, "input": i})),
    "F.embedding_bag": (F.embedding_bag, lambda x, i: ((i, x, ZERO), {"mode": "sum"})),
    "torch.embedding_bag": (torch.embedding_bag, lambda x, i: ((x, i, ZERO), {})),
    "aten._embedding_bag": (aten._embedding_bag.default, lambda x, i: ((x, i, ZERO), {})),
    "aten.embedding": (aten.embedding.default, lambda x, i: ((x, i), {})),
    "index_select": (torch.index_select, lambda x, i: ((x, 0, i), {})),
    "index_select by name": (torch.index_select, lambda x, i: ((x,), {"dim": 0, "index": i})),
    "x.index_select": ("index_select", lambda x, i: ((x, -2, i), {})),
    "gather": (torch.gather, lambda x, i: ((x, 0, i.unsqueeze(1)), {})),
    "take": (torch.take, lambda x, i: ((), {"input": x, "index": i})),
    "aten.index": (aten.index.Tensor, lambda x, i: ((x, [i]), {})),
    "aten.index of two dims": (aten.index.Tensor, lambda x, i: ((x, [i, ZERO]), {})),
    "aten.index of a later dim": (aten.index.Tensor, lambda x, i: ((x.t(), [None, i]), {})),
}


def run(call: Any, args: Any, kwargs: Any) -> Any:
    return getattr(args[0], call)(*args[1:], **kwargs) if isinstance(call, str) else call(*args, **kwargs)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("table", [TABLE, NO_ROWS, NO_COLUMNS], ids=["table", "no rows", "no columns"])
@pytest.mark.parametrize("indices", [NONE, TWO], ids=["none", "two"])
def test_nothing_is_read_where_eager_refuses(name: str, table: torch.Tensor, indices: torch.Tensor) -> None:
    call, given = CALLS[name]
    if (name, table.shape[1], len(indices)) in [("gather", 0, 2)]:
        pytest.skip("the indices have no column either")
    args, kwargs = given(table, indices)
    found = index_reads.of(call, args, kwargs)
    assert found is not None
    if found.into_nothing(lambda n: n == 0):
        with pytest.raises((IndexError, RuntimeError)):
            run(call, args, kwargs)
    else:
        run(call, args, kwargs)


@pytest.mark.parametrize("call", [aten.index_fill.int_Scalar, aten.embedding_dense_backward.default, torch.sin, "sum"])
def test_others_read_nothing_at_indices(call: Any) -> None:
    assert index_reads.of(call, (TABLE,), {}) is None
