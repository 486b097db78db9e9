"""Values fit where they are put, or the call raises what eager raises: torch's fake kernels do not look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import anyshape
from anyshape.testing import difference

SIZES = ((4, 4), (6, 6), (4, 2), (2, 6), (1, 4), (4, 1), (7, 7), (0, 0), (0, 3), (3, 0), (1, 1))


def _set(x: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    x[places] = values
    return x


def _set_columns(x: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    x[:, places] = values
    return x


def _put(x: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return x.index_put((places,), values, accumulate=True)


def _add(x: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return x.index_add(0, places, values)


STRETCHED = {
    "places": (_set, lambda n, m: (torch.zeros(20), torch.arange(n), torch.randn(m))),
    "rows": (_set, lambda n, m: (torch.zeros(20, 3), torch.arange(n), torch.randn(m, 3))),
    "with leading ones": (_set, lambda n, m: (torch.zeros(20, 3), torch.arange(n), torch.randn(1, 1, m, 3))),
    "columns": (_set_columns, lambda n, m: (torch.zeros(3, 20), torch.arange(n), torch.randn(3, m))),
    "a free dim": (_put, lambda n, m: (torch.zeros(20, n), torch.arange(3), torch.randn(3, m))),
}
SAME = {
    "index_add": (_add, lambda n, m: (torch.zeros(20, n), torch.arange(3), torch.randn(3, m))),
    "select_scatter": (lambda x, y: torch.select_scatter(x, y, 0, 0), lambda n, m: (torch.zeros(3, n), torch.randn(m))),
    "slice_scatter": (lambda x, y: x.slice_scatter(y, 0, 0, 2), lambda n, m: (torch.zeros(5, n), torch.randn(2, m))),
    "diagonal_scatter": (torch.diagonal_scatter, lambda n, m: (torch.zeros(n, n), torch.randn(m))),
}
ONE_OPERAND = {
    "soft_margin_loss": (F.soft_margin_loss, lambda n, m: (torch.randn(n), torch.randn(m))),
    "addmv": (torch.addmv, lambda n, m: (torch.randn(n), torch.randn(m, 3), torch.randn(3))),
}
CASES = [pytest.param(*case, 2, id=name) for name, case in STRETCHED.items()]
CASES += [pytest.param(*case, 1, id=name) for name, case in SAME.items()]
CASES += [pytest.param(*case, 2, id=name) for name, case in ONE_OPERAND.items()]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize(("fn", "arguments", "programs"), CASES)
def test_values_that_do_not_fit(
    fn: Callable[..., Any], arguments: Callable[..., Any], programs: int, backend: str
) -> None:
    compiled = anyshape.compile(fn, backend=backend)
    for n, m in SIZES:
        text = difference(fn, compiled, arguments(n, m))
        assert text is None, f"{n}, {m}: {text}"
    assert len(compiled.programs) == programs
