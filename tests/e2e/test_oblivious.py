"""Oblivious semantics: one program, no guard on a size or a stride, assertions where something is assumed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list

import anyshape
from anyshape._torch.comparison import stock

SIZES = (5, 0, 1, 2, 300)


def guards_on_sizes(f: Any) -> list[str]:
    """What the guards that Dynamo has installed say about sizes and strides; a model's own weights are left out."""
    entries = [e for p in f._engine.programs for e in _debug_get_cache_entry_list(p.origin)]
    assert entries, "nothing is installed"
    found = []
    for line in "\n".join(str(e.guard_manager) for e in entries).splitlines():
        if re.search(r"__anyshape_admits|SYMBOLIC_SHAPE_GUARD|\.size\(\)|\.stride\(\)", line):
            found.append(line)
        match = re.search(r"check_tensor\(.*size=\[([^\]]*)\], stride=\[([^\]]*)\]", line)
        numbers = set(", ".join(match.groups()).split(", ")) if match else set()
        if match and "Parameter" not in line and numbers - {"None"}:
            found.append(line)
    return found


def layouts(n: int, width: int) -> list[torch.Tensor]:
    room = torch.randn(n, 2 * width + 3)
    return [torch.randn(n, width), torch.randn(width, n).t(), room[:, 1 : 2 * width + 1 : 2]]


OPS: dict[str, Callable[[torch.Tensor], Any]] = {
    "add": lambda x: x + 1,
    "mul": lambda x: x * x,
    "relu": lambda x: torch.relu(x),
    "exp": lambda x: torch.exp(x),
    "gelu": lambda x: F.gelu(x),
    "where": lambda x: torch.where(x > 0, x, -x),
    "clamp": lambda x: x.clamp(0, 1),
    "softmax": lambda x: x.softmax(-1),
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.mean(1),
    "var": lambda x: x.var(1),
    "norm": lambda x: x.norm(dim=1),
    "logsumexp": lambda x: x.logsumexp(1),
    "argmax": lambda x: x.argmax(1),
    "cumsum": lambda x: x.cumsum(0),
    "sort": lambda x: x.sort(1).values,
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1, 1),
    "cat": lambda x: torch.cat([x, x]),
    "stack": lambda x: torch.stack([x, x]),
    "pad": lambda x: F.pad(x, (1, 1)),
    "repeat": lambda x: x.repeat(2, 1),
    "tril": lambda x: torch.tril(x),
    "reshape": lambda x: (x + 1).reshape(-1),
    "flatten": lambda x: torch.flatten(x),
    "unsqueeze": lambda x: x.unsqueeze(0) * 2,
    "expand": lambda x: x.unsqueeze(0).expand(3, -1, -1) + 0,
    "permute": lambda x: x.permute(1, 0).contiguous(),
    "slice": lambda x: x[1:] + 1,
    "chunk": lambda x: x.chunk(2, 1)[0] + 1,
    "index": lambda x: x[:, [0, 2]],
    "embedding": lambda x: F.embedding(x.long().abs() % 5, torch.ones(5, 3)),
    "matmul": lambda x: x @ x.t(),
    "layer_norm": lambda x: F.layer_norm(x, (8,)),
    "conv": lambda x: F.conv1d(x.unsqueeze(1), torch.ones(2, 1, 3)),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
}


@pytest.mark.parametrize("name", OPS)
def test_no_guard_on_a_size_or_a_stride(name: str) -> None:
    fn = OPS[name]
    f = anyshape.compile(fn, shapes={"x": "n 8"}, semantics="oblivious", layout="any", backend="aot_eager")
    for n in SIZES:
        for x in layouts(n, 8):
            torch.testing.assert_close(f(x), fn(x), equal_nan=True, check_stride=False)
    assert len(f.programs) == 1 and f.programs[0].predicates == () and not f.fallbacks
    assert guards_on_sizes(f) == []


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


MODELS: dict[str, tuple[Callable[[], torch.nn.Module], Callable[[int], torch.Tensor], str]] = {
    "mlp": (
        lambda: torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)),
        lambda n: torch.randn(n, 8),
        "n 8",
    ),
    "convolutions": (
        lambda: torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(4, 2),
        ),
        lambda n: torch.randn(n, 3, 8, 8),
        "n 3 8 8",
    ),
    "normalised": (
        lambda: torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.Linear(8, 8), torch.nn.Softmax(-1)),
        lambda n: torch.randn(n, 4, 8),
        "n 4 8",
    ),
    "embedding": (
        lambda: torch.nn.Sequential(torch.nn.Embedding(10, 8), torch.nn.Linear(8, 3)),
        lambda n: torch.randint(0, 10, (n, 6)),
        "n 6",
    ),
    "encoder": (
        lambda: torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0),
        lambda n: torch.randn(n, 5, 8),
        "n 5 8",
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_have_no_guard_either(name: str) -> None:
    make, sample, shape = MODELS[name]
    model = make()
    path = next(iter(__import__("inspect").signature(model.forward).parameters))
    f = anyshape.compile(model, shapes={path: shape}, semantics="oblivious", layout="any", backend="aot_eager")
    for n in SIZES:
        x = sample(n)
        torch.testing.assert_close(f(x), model(x), check_stride=False)
    assert len(f.programs) == 1 and f.programs[0].predicates == () and not f.fallbacks
    assert guards_on_sizes(f) == []


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_squeeze_keeps_a_size_that_may_not_be_asked_about(backend: str) -> None:
    """The example of the seeds: one program and no guard, and eager's own answer under eager semantics."""
    squeeze = lambda x: torch.squeeze(x)
    f = anyshape.compile(squeeze, shapes={"x": "s0 20 1"}, semantics="oblivious", backend=backend)
    for s0 in (1, 3, 0, 1000):
        x = torch.randn(s0, 20, 1)
        y = f(x)
        assert y.shape == (s0, 20) and torch.equal(y, x[:, :, 0])
    assert len(f.programs) == 1 and guards_on_sizes(f) == []
    torch._dynamo.reset()
    eager = anyshape.compile(squeeze, shapes={"x": "s0 20 1"}, backend=backend)
    assert [tuple(eager(torch.randn(n, 20, 1)).shape) for n in (3, 1, 7)] == [(3, 20), (20,), (7, 20)]
    assert len(eager.programs) == 2


def test_squeeze_of_what_is_made_inside() -> None:
    f = anyshape.compile(
        lambda x: torch.squeeze(torch.ones(x.shape[0], 20, 1)), semantics="oblivious", backend="aot_eager"
    )
    assert [tuple(f(torch.randn(n)).shape) for n in (1, 3, 0)] == [(1, 20), (3, 20), (0, 20)]
    assert len(f.programs) == 1


def restaurants(*visits: torch.Tensor) -> torch.Tensor:
    """How often each place was visited: most of them 0, 1 or 2 times."""
    return torch.stack([v.sum() * 2 + v.numel() for v in visits])


def test_many_small_counts_share_one_program() -> None:
    torch.manual_seed(0)
    days = [[int(n) for n in torch.randint(0, 3, (100,))] for _ in range(12)]
    calls = [[torch.randn(n) for n in day] for day in days]
    f = anyshape.compile(restaurants, semantics="oblivious", backend="eager")
    for visits in calls:
        torch.testing.assert_close(f(*visits), restaurants(*visits))
    assert len(f.programs) == 1 and not f.fallbacks
    torch._dynamo.reset()
    with stock.measuring():
        other = stock.compile(restaurants, mode="auto", backend="eager")
        for visits in calls:
            torch.testing.assert_close(other(*visits), restaurants(*visits))
    print(f"100 counts of 0, 1 and 2 over 12 days: anyshape 1 program, stock {other.programs}")
    assert other.programs >= 10


def test_one_name_alone_is_oblivious() -> None:
    fn = lambda x: torch.squeeze(x) if x.shape[1] > 4 else x
    f = anyshape.compile(fn, shapes={"x": "batch! seq"}, backend="aot_eager")
    for batch, seq in ((3, 6), (1, 6), (0, 9)):
        assert f(torch.randn(batch, seq)).shape == (batch, seq)
    assert [p.behavior for p in f.programs] == ["x.shape[1] > 4"]
    assert f(torch.randn(1, 3)).shape == (1, 3) and len(f.programs) == 2


def test_gradients() -> None:
    fn = lambda x, w: F.relu(x @ w).sum(1)
    f = anyshape.compile(fn, semantics="oblivious", backend="aot_eager")
    for n in (4, 1, 0, 50):
        x, w = torch.randn(n, 3, requires_grad=True), torch.randn(3, 6, requires_grad=True)
        ours = torch.autograd.grad(f(x, w).sum(), (x, w))
        torch.testing.assert_close(ours, torch.autograd.grad(fn(x, w).sum(), (x, w)))
    assert len(f.programs) == 1


def test_a_write_through_a_view_is_not_lost() -> None:
    """A reshape that copies in most layouts and is a view in this one may not quietly become a copy."""
    fn = lambda x: x.reshape(-1).add_(1)
    f = anyshape.compile(fn, semantics="oblivious", layout="any", backend="aot_eager")
    x = torch.zeros(3, 4)
    f(x)
    assert torch.equal(x, torch.ones(3, 4))
    with pytest.raises(anyshape.AssumptionError, match="stride"):
        f(torch.zeros(4, 3).t())


def test_guards_would_be_seen() -> None:
    f = anyshape.compile(lambda x: x * 2, backend="eager")
    f(torch.randn(3))
    assert any("__anyshape_admits" in line for line in guards_on_sizes(f))
