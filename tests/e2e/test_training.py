"""Training: one program forward and backward for every batch size, losses and gradients as eager's."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import anyshape
from anyshape.testing import difference, expect_programs

STEPS = 30


class Block(nn.Module):
    """A transformer block, its attention written out."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            self.qkv(self.before(x))
            .view(batch, length, 3, self.heads, width // self.heads)
            .permute(2, 0, 3, 1, 4)
            .unbind(0)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.after(x))


class Transformer(nn.Module):
    def __init__(self, vocabulary: int = 11, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(2)])
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 8, 3, stride=2),
            nn.GroupNorm(2, 8),
            nn.ReLU(),
        )
        self.head = nn.Linear(8, 3)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images).mean((2, 3)))


def batch_sizes(smallest: int, seed: int) -> list[int]:
    """Thirty draws from `smallest` to 48, with the sizes that are special to compilers among them."""
    drawn = random.Random(seed)
    sizes = [drawn.randint(smallest, 48) for _ in range(STEPS - 3)]
    for special in (smallest, 1, 48):
        sizes.insert(drawn.randrange(len(sizes)), special)
    return sizes


def train(
    model: nn.Module,
    batches: list[tuple[Tensor, Tensor]],
    loss_of: Callable[[Tensor, Tensor], Tensor],
    optimiser: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
) -> Any:
    """Train a copy compiled and a copy eager, step by step beside one another."""
    ours, eager = copy.deepcopy(model), copy.deepcopy(model)
    f = anyshape.compile(ours, backend="aot_eager")
    steppers = [optimiser(m.parameters(), lr=1e-2) for m in (ours, eager)]
    with expect_programs(1):
        for step, (given, wanted) in enumerate(batches):
            losses = []
            for call, stepper in zip((f, eager), steppers, strict=True):
                stepper.zero_grad()
                loss = loss_of(call(given), wanted)
                loss.backward()
                losses.append(loss.detach())
            where = f"step {step}, batch of {len(given)}"
            torch.testing.assert_close(*losses, msg=lambda text, where=where: f"{where}: loss: {text}")
            for (name, mine), theirs in zip(ours.named_parameters(), eager.parameters(), strict=True):
                assert mine.grad is not None and theirs.grad is not None
                torch.testing.assert_close(
                    mine.grad, theirs.grad, msg=lambda text, where=where, name=name: f"{where}: {name}: {text}"
                )
            for stepper in steppers:
                stepper.step()
    assert f.fallbacks == {}
    for mine, theirs in zip(ours.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)
    return f


def test_a_transformer() -> None:
    lengths = random.Random(3)
    batches = []
    for size in batch_sizes(0, 1):
        tokens = torch.randint(0, 11, (size, lengths.randint(1, 12)))
        batches.append((tokens, tokens.roll(-1, 1)))
    train(Transformer(), batches, lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten(), reduction="sum"))


def test_a_cnn() -> None:
    batches = [(torch.randn(n, 1, 12, 12), torch.randint(0, 3, (n,))) for n in batch_sizes(0, 2)]
    train(Cnn(), batches, lambda y, t: F.cross_entropy(y, t, reduction="sum"))


@pytest.mark.slow
def test_a_cnn_over_image_sizes() -> None:
    sizes = random.Random(5)
    batches = [
        (torch.randn(n, 1, sizes.randint(6, 24), sizes.randint(6, 24)), torch.randint(0, 3, (n,)))
        for n in batch_sizes(1, 4)[:12]
    ]
    train(Cnn(), batches, F.cross_entropy)


def test_adam_and_a_loss_inside() -> None:
    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

        def forward(self, x: Tensor) -> Tensor:
            return F.mse_loss(self.body(x), x.sum(-1, keepdim=True), reduction="sum")

    batches = [(torch.randn(n, 4), torch.empty(0)) for n in batch_sizes(0, 6)]
    train(WithLoss(), batches, lambda loss, _: loss, torch.optim.Adam)


def test_the_first_batch_is_of_one_or_none() -> None:
    for first in (0, 1):
        torch._dynamo.reset()
        batches = [(torch.randn(n, 1, 12, 12), torch.randint(0, 3, (n,))) for n in (first, 5, 1, 0, 12)]
        train(Cnn(), batches, lambda y, t: F.cross_entropy(y, t, reduction="sum"))


def test_batch_norm_keeps_its_statistics() -> None:
    ours = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    eager = copy.deepcopy(ours)
    f = anyshape.compile(ours, backend="aot_eager")
    with expect_programs(2):  # training and not
        for n in (5, 2, 9, 30):
            x = torch.randn(n, 3)
            torch.testing.assert_close(f(x), eager(x))
            torch.testing.assert_close(ours[1].running_mean, eager[1].running_mean)
            torch.testing.assert_close(ours[1].running_var, eager[1].running_var)
            assert ours[1].num_batches_tracked == eager[1].num_batches_tracked
        ours.eval(), eager.eval()
        for n in (5, 1, 7):
            x = torch.randn(n, 3)
            torch.testing.assert_close(f(x), eager(x))


def test_batch_norm_of_nothing() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval()
    f = anyshape.compile(model, backend="aot_eager")
    with expect_programs(1):
        for n in (5, 1, 0):
            x = torch.randn(n, 3)
            torch.testing.assert_close(f(x), model(x))


# -- gradients of inputs -----------------------------------------------------------------------------------------


def _fn(x: Tensor, y: Tensor) -> Tensor:
    return torch.tanh(x @ y).sum(0)


def test_inputs_that_require_grad() -> None:
    f = anyshape.compile(_fn, backend="aot_eager")
    with expect_programs(1):
        for n, m in [(3, 4), (1, 4), (3, 1), (0, 2), (2, 0), (1, 1), (8, 8)]:
            ours = [torch.randn(n, 3, requires_grad=True), torch.randn(3, m, requires_grad=True)]
            eager = [t.detach().clone().requires_grad_() for t in ours]
            for call, inputs in ((f, ours), (_fn, eager)):
                call(*inputs).square().sum().backward()
            for mine, theirs in zip(ours, eager, strict=True):
                torch.testing.assert_close(mine.grad, theirs.grad)


def test_each_pattern_of_requires_grad_is_a_program() -> None:
    f = anyshape.compile(_fn, backend="aot_eager")
    with expect_programs(4):
        for n in (3, 1, 0, 6):
            for pattern in [(True, True), (True, False), (False, True), (False, False)]:
                x, y = torch.randn(n, 3, requires_grad=pattern[0]), torch.randn(3, 4, requires_grad=pattern[1])
                assert f(x, y).requires_grad == any(pattern)
                torch.testing.assert_close(f(x, y), _fn(x, y))


def test_retained_graphs() -> None:
    f = anyshape.compile(_fn, backend="aot_eager")
    with expect_programs(1):
        for n in (4, 1, 0, 7):
            ours = torch.randn(n, 3, requires_grad=True)
            eager = ours.detach().clone().requires_grad_()
            y = torch.randn(3, 2)
            for call, x in ((f, ours), (_fn, eager)):
                out = call(x, y)
                out.sum().backward(retain_graph=True)
                out.square().sum().backward()
            torch.testing.assert_close(ours.grad, eager.grad)


def test_graphs_of_many_sizes_alive_at_once() -> None:
    f = anyshape.compile(_fn, backend="aot_eager")
    sizes = (4, 1, 0, 7, 2)
    y = torch.randn(3, 2)
    ours = [torch.randn(n, 3, requires_grad=True) for n in sizes]
    eager = [x.detach().clone().requires_grad_() for x in ours]
    with expect_programs(1):
        outs = [f(x, y) for x in ours]
    for out in reversed(outs):
        out.sum().backward()
    for x in eager:
        _fn(x, y).sum().backward()
    for mine, theirs in zip(ours, eager, strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_autograd_grad_of_some_inputs() -> None:
    f = anyshape.compile(_fn, backend="aot_eager")
    for n in (4, 1, 0, 7):
        x, y = torch.randn(n, 3, requires_grad=True), torch.randn(3, 2, requires_grad=True)
        (mine,) = torch.autograd.grad(f(x, y).sum(), [y])
        (theirs,) = torch.autograd.grad(_fn(x, y).sum(), [y])
        torch.testing.assert_close(mine, theirs)


def test_strided_gradients_arrive_right() -> None:
    def fn(x: Tensor) -> Tensor:
        return (x * 2).t().reshape(-1)

    f = anyshape.compile(fn, backend="aot_eager")
    for n, m in [(3, 4), (1, 4), (3, 1), (0, 2), (5, 5)]:
        ours = torch.randn(n, m, requires_grad=True)
        eager = ours.detach().clone().requires_grad_()
        weight = torch.randn(2 * n * m)[::2]
        (f(ours) * weight).sum().backward()
        (fn(eager) * weight).sum().backward()
        torch.testing.assert_close(ours.grad, eager.grad)


# -- modes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_around_a_call(mode: Callable[[], Any]) -> None:
    model = nn.Linear(3, 2)
    f = anyshape.compile(model, backend="aot_eager")
    with expect_programs(1), mode():
        for n in (4, 1, 0, 7):
            x = torch.randn(n, 3)
            got, want = f(x), model(x)
            torch.testing.assert_close(got, want)
            assert got.requires_grad == want.requires_grad
            assert got.is_inference() == want.is_inference()


def test_modes_in_turn() -> None:
    model = nn.Linear(3, 2)
    f = anyshape.compile(model, backend="aot_eager")
    with expect_programs(3, at_most=True):
        for n in (4, 1, 0, 7):
            for mode in (torch.no_grad, torch.enable_grad, torch.inference_mode):
                with mode():
                    x = torch.randn(n, 3)
                    got, want = f(x), model(x)
                torch.testing.assert_close(got, want)
                assert (got.requires_grad, got.is_inference()) == (want.requires_grad, want.is_inference())


def test_no_grad_inside() -> None:
    def fn(x: Tensor) -> Tensor:
        with torch.no_grad():
            scale = x.abs().sum()
        return x * scale

    f = anyshape.compile(fn, backend="aot_eager")
    with expect_programs(1):
        for n in (4, 1, 0, 7):
            ours = torch.randn(n, requires_grad=True)
            eager = ours.detach().clone().requires_grad_()
            f(ours).sum().backward()
            fn(eager).sum().backward()
            torch.testing.assert_close(ours.grad, eager.grad)


@pytest.mark.parametrize("inside", [False, True])
def test_autocast(inside: bool) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))

    def fn(x: Tensor) -> Tensor:
        if inside:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return model(x)
        return model(x)

    f = anyshape.compile(fn, backend="aot_eager")
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not inside), expect_programs(1):
        for n in (4, 1, 0, 7):
            x = torch.randn(n, 3)
            got, want = f(x), fn(x)
            assert got.dtype == want.dtype == torch.bfloat16
            torch.testing.assert_close(got, want)


def test_autocast_outside_is_seen() -> None:
    model = nn.Linear(3, 2)
    f = anyshape.compile(model, backend="aot_eager")
    for n in (4, 1, 0, 7):
        for enabled in (False, True):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                x = torch.randn(n, 3)
                assert f(x).dtype == model(x).dtype
    assert len(f.programs) == 2


def test_dropout_is_seeded_as_in_eager() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    f = anyshape.compile(model, backend="aot_eager")
    with expect_programs(1):
        for n in (4, 1, 0, 7):
            x = torch.randn(n, 4)
            torch.manual_seed(n)
            got = f(x)
            torch.manual_seed(n)
            torch.testing.assert_close(got, model(x))


def test_a_kernel_whose_fake_has_other_strides() -> None:
    """Dropout's gradient follows the strides it is given, its fake does not; the linear layer before it views it."""

    def fn(x: Tensor, w: Tensor) -> Tensor:
        return F.dropout(F.linear(x, w), 0.5, True).transpose(1, 2).sin()

    f = anyshape.compile(fn, backend="aot_eager")
    for batch in (2, 1, 3):
        x, grads = torch.randn(batch, 4, 5), []
        w = torch.randn(6, 5, requires_grad=True)
        for call in (fn, f):
            torch.manual_seed(0)
            given = x.clone().requires_grad_()
            grads.append(torch.autograd.grad(call(given, w).square().sum(), (given, w)))
        torch.testing.assert_close(*grads)
    assert len(f.programs) == 1 and f.fallbacks == {}


@pytest.mark.filterwarnings("ignore::anyshape.FallbackWarning")
@pytest.mark.filterwarnings("ignore:Error detected")
def test_a_selection_whose_input_is_written_raises_in_backward() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        chosen = torch.masked_select(y, y > 0)
        y.zero_()
        return chosen.sum()

    f = anyshape.compile(fn, backend="aot_eager")
    for n in (3, 5):
        x = torch.arange(n, dtype=torch.float32).requires_grad_()
        assert difference(fn, f, (x,), backward=True) is None
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            f(x).backward()


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("sizes", [(3, 1, 0, 5), (0, 4, 1)])
@pytest.mark.parametrize("loss", [F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.l1_loss])
def test_losses_of_an_empty_batch_have_their_gradients(loss: Any, sizes: tuple[int, ...], backend: str) -> None:
    """Fake kernels of some divide by how many elements there are."""
    fn = lambda x: loss(x, torch.zeros_like(x))
    f = anyshape.compile(fn, backend=backend)
    for n in sizes:
        x = torch.randn(n, 3, requires_grad=True)
        assert difference(fn, f, (x,), backward=True, rtol=1e-4, atol=1e-5) is None
    assert len(f.programs) == 1
    assert not f.fallbacks
