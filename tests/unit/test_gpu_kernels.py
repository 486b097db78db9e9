"""Repairs of what only a GPU runs, as far as they can be seen without one."""

from __future__ import annotations

import pytest
from torch._inductor.runtime.triton_heuristics import Grid2DWithYZOverflow

from anyshape._torch.compile import compile_scope


@pytest.mark.parametrize("rows", [0, 1, 70_000, 16 * 65_535 + 1])
def test_a_grid_over_any_number_of_rows(rows: int) -> None:
    with compile_scope.scope():
        grid = Grid2DWithYZOverflow(inductor_meta={}, mode="python")
        grid.generate({"XBLOCK": 4, "YBLOCK": 16})
    x, y, z = grid.eval_slow({"xnumel": 8, "ynumel": rows})
    blocks = -(-rows // 16)
    assert x == 2
    assert blocks <= y * z < blocks + max(z, 1)
