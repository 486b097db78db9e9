"""Calls whose fake kernels say of the layout what is not so.

Batch norm of a transposed signal: stock `torch.compile` fails at the view, on torch 2.13 and 2.15.
"""

from __future__ import annotations

import pytest
import torch

import anyshape


@pytest.mark.parametrize("trains", [False, True], ids=["eval", "train"])
def test_a_transposed_signal_can_be_viewed_afterwards(trains: bool) -> None:
    norm = torch.nn.BatchNorm1d(8).train(trains)

    def through(x: torch.Tensor) -> torch.Tensor:
        y = norm(x.transpose(1, 2)).transpose(1, 2)
        return y.reshape(-1, 8) @ torch.ones(8, 2)

    f = anyshape.compile(through, backend="aot_eager", fullgraph=True)
    for batch, length in ((3, 4), (5, 2), (2, 7)):
        x = torch.randn(batch, length, 8, requires_grad=True)
        got = f(x)
        (mine,) = torch.autograd.grad(got.square().sum(), x)
        want = through(x)
        (theirs,) = torch.autograd.grad(want.square().sum(), x)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)
    assert f.fallbacks == {} and len(f.programs) == 1
