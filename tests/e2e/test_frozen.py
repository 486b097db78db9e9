"""`frozen=True`: a seen key goes straight to its program, and everything else is as ever."""

from __future__ import annotations

import gc
import warnings
import weakref

import pytest
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


class Layers(nn.Module):
    """One that may have others of its class inside, and code that Dynamo does not follow."""

    def __init__(self, *inside: nn.Module, breaks: bool = False) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.inside = nn.ModuleList(inside)
        self.breaks = breaks

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        if self.breaks:
            torch._dynamo.graph_break()
        for module in self.inside:
            x = module(x)
        return x


def test_parameters_that_are_written_to_are_seen(taken: list[bool]) -> None:
    model = Layers(Layers())
    f = anyshape.compile(model, backend="aot_eager", frozen=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = torch.randn(3, 4)
    for _ in range(4):
        torch.testing.assert_close(f(x), model(x))
        f(x).sum().backward()
        assert all(p.grad is not None for p in model.parameters())
        optimizer.step()
        optimizer.zero_grad()
    model.load_state_dict(Layers(Layers()).state_dict())
    torch.testing.assert_close(f(x), model(x))
    assert len(f.programs) == 1 and taken.count(True) >= 7


@pytest.mark.parametrize("breaks", [False, True])
def test_modules_of_one_class_have_their_own_parameters(breaks: bool) -> None:
    for _ in range(2):
        model = Layers(Layers(breaks=breaks), Layers(breaks=breaks), breaks=breaks)
        f = anyshape.compile(model, backend="aot_eager", frozen=True)
        for n in (3, 3, 5, 1, 3):
            x = torch.randn(n, 4)
            torch.testing.assert_close(f(x), model(x))


def test_parameters_go_with_their_module() -> None:
    model = Layers(Layers())
    f = anyshape.compile(model, backend="aot_eager", frozen=True)
    f(torch.randn(3, 4))
    f(torch.randn(3, 4))
    kept = [weakref.ref(p) for p in model.parameters()]
    del model, f
    gc.collect()
    assert [ref() for ref in kept] == [None] * 4


def test_modules_that_are_arguments_share_a_program() -> None:
    f = anyshape.compile(lambda module, x: module(x), backend="aot_eager", frozen=True)
    for model in (nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)):
        x = torch.randn(3, 4)
        torch.testing.assert_close(f(model, x), model(x))
    assert len(f.programs) == 1
