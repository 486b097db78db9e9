"""`frozen=True`: a seen key goes straight to its program, and everything else is as ever."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

import anyshape
from anyshape.testing import difference, expect_programs

FACTOR = 3


def scaled(x: Tensor, k: int = 2) -> Tensor:
    return torch.tanh(x * FACTOR).sum(0) * k


def test_a_seen_key_goes_straight(taken: list[bool]) -> None:
    f = anyshape.compile(scaled, backend="aot_eager", frozen=True)
    with expect_programs(1):
        for n in (4, 4, 1, 0, 1, 4, 0):
            x = torch.randn(n, 3)
            assert difference(scaled, f, (x,)) is None
    assert taken == [False, True, False, False, True, True, True]
    assert f.programs[0].calls == 7


def test_modules_and_keywords(taken: list[bool]) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.drop = nn.Dropout(0.5)

        def forward(self, x: Tensor, *, k: int = 2) -> Tensor:
            return self.drop(self.layer(x)) * k

    model = Model().eval()
    f = anyshape.compile(model, backend="aot_eager", frozen=True)
    for n, k in [(3, 2), (3, 2), (1, 5), (1, 5), (3, 5)]:
        x = torch.randn(n, 4)
        torch.testing.assert_close(f(x, k=k), model(x, k=k))
    assert taken == [False, True, False, True, False]
    model.train()
    assert (f(torch.ones(64, 4), k=1) == 0).any()


def test_what_is_told_apart(taken: list[bool]) -> None:
    f = anyshape.compile(scaled, backend="aot_eager", frozen=True)
    x = torch.randn(4, 3)
    for given in (x, x.double(), x.t().contiguous().t(), x.clone().requires_grad_()):
        assert difference(scaled, f, (given,)) is None
    with torch.no_grad():
        assert difference(scaled, f, (x,)) is None
    with torch.inference_mode():
        assert difference(scaled, f, (x.clone(),)) is None
    assert not any(taken)


def test_gradients() -> None:
    f = anyshape.compile(scaled, backend="aot_eager", frozen=True)
    for n in (4, 4, 2, 4, 2):
        ours = torch.randn(n, 3, requires_grad=True)
        eager = ours.detach().clone().requires_grad_()
        f(ours).sum().backward()
        scaled(eager).sum().backward()
        torch.testing.assert_close(ours.grad, eager.grad)


def test_graph_breaks_and_containers_take_the_usual_way(taken: list[bool]) -> None:
    def breaks(x: Tensor) -> Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    f = anyshape.compile(breaks, backend="aot_eager", frozen=True)
    g = anyshape.compile(lambda xs: xs[0] + xs[1], backend="aot_eager", frozen=True)
    for n in (3, 3, 3):
        assert difference(breaks, f, (torch.randn(n),)) is None
        g([torch.randn(n), torch.randn(n)])
    assert not any(taken)


def test_written_inputs_that_come_to_share_memory() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return x * y

    f = anyshape.compile(fn, backend="aot_eager", frozen=True)
    room = torch.randn(9)
    for x, y in [(torch.randn(4), torch.randn(4)), (torch.randn(4), torch.randn(4)), (room[:4], room[2:6])]:
        ours, eager = (x, y), (x.clone(), y.clone())
        if x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr():
            copy = room.clone()
            eager = (copy[:4], copy[2:6])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", anyshape.FallbackWarning)  # inputs that share what is written run eagerly
            torch.testing.assert_close(f(*ours), fn(*eager))


def test_a_stance_is_honoured(taken: list[bool]) -> None:
    f = anyshape.compile(scaled, backend="aot_eager", frozen=True)
    x = torch.randn(4, 3)
    f(x)
    with torch.compiler.set_stance("force_eager"):
        torch.testing.assert_close(f(x), scaled(x))
    f(x)
    assert taken == [False, True]
    assert f.programs[0].calls == 2
