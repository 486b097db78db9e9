"""Functions to export, each with two free sizes and the inputs for them. The first sizes are the example's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIZES = [(4, 6), (1, 1), (2, 2), (0, 6), (4, 0), (0, 0), (1, 7), (5, 1), (3, 129), (17, 33)]


def _rand(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + 7 * len(shape))
    return torch.randn(*shape, generator=generator)


def _ints(high: int, *shape: int) -> Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(sum(shape)))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, n, 16))


class Rotary(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        angles = torch.arange(x.shape[1], device=x.device)[:, None] * torch.arange(1, 5, device=x.device)[None] / 10
        cos, sin = angles.cos(), angles.sin()
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


class Embedder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 8), nn.Embedding(256, 8)

    def forward(self, ids: Tensor) -> Tensor:
        return self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))


def pairwise(x: Tensor) -> Tensor:
    return (x[:, None] - x[None]).square().sum(-1)


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    return (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


def reshape(x: Tensor) -> Tensor:
    b, n, d = x.shape
    return x.reshape(b * n, d).relu().reshape(b, n, d)


def padded(x: Tensor) -> Tensor:
    return F.pad(x, (1, 2))


def last(x: Tensor) -> Tensor:
    return x[:, -1:] * 2


def strided(x: Tensor) -> Tensor:
    return x[:, ::2] + 1


def flipped(x: Tensor) -> Tensor:
    return torch.cat([x, x.flip(1)], 1)


def cumulative(x: Tensor) -> Tensor:
    return x.cumsum(1) / torch.arange(1, x.shape[1] + 1, device=x.device)


def causal(x: Tensor) -> Tensor:
    n = x.shape[1]
    return torch.ones(n, n, dtype=torch.bool, device=x.device).tril() & (x.sum() > -1e9)


def scatter(x: Tensor, index: Tensor) -> Tensor:
    return torch.zeros(x.shape[0], 8, dtype=x.dtype, device=x.device).scatter_add(1, index, x)


def outer(x: Tensor, y: Tensor) -> Tensor:
    return torch.einsum("bi,nj->bnij", x, y).amax((2, 3))


def expanded(x: Tensor, y: Tensor) -> Tensor:
    return x[:, None, :].expand(-1, y.shape[0], -1) * y


def stacked(x: Tensor) -> Tensor:
    return torch.stack([x, x * 2, x + 1], 1).flatten(0, 1)


def normalised(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-1) * math.sqrt(2)


def written(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, 1:] = 0
    return y.add_(1)


def scaled(x: Tensor) -> Tensor:
    return x * x.shape[0] / (x.shape[1] + 1)


def residual(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x + y, (x * y).sum(-1)


def where(x: Tensor, y: Tensor) -> dict[str, Tensor]:
    return {"larger": torch.where(x > y, x, y), "equal": x == y}


def repeated(x: Tensor) -> Tensor:
    return x.repeat_interleave(2, dim=1) - x.repeat(1, 2)


def convolved() -> nn.Module:
    return nn.Sequential(nn.Conv1d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv1d(4, 2, 1))


Inputs = Callable[[int, int], tuple[Any, ...]]
seq: Inputs = lambda b, n: (_rand(b, n, 8),)
wide: Inputs = lambda b, n: (_rand(b, n, 16),)
flat: Inputs = lambda b, n: (_rand(b, n),)

# What is declared; all other dims are free.
SHAPES: dict[str, Any] = {"rotary": {"x": "batch length 8"}}

CASES: dict[str, tuple[Callable[[], Any], Inputs]] = {
    "relu": (lambda: torch.relu, flat),
    "linear": (lambda: nn.Linear(8, 5), seq),
    "mlp": (lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3)), seq),
    "matmul": (lambda: torch.matmul, lambda b, n: (_rand(b, n), _rand(n, 5))),
    "bmm": (lambda: torch.bmm, lambda b, n: (_rand(b, n, 4), _rand(b, 4, n))),
    "attention": (Attention, wide),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0).eval(), wide),
    "rotary": (Rotary, seq),
    "embedding": (Embedder, lambda b, n: (_ints(50, b, n),)),
    "softmax": (lambda: lambda x: torch.softmax(x, 0), flat),
    "layer_norm": (lambda: nn.LayerNorm(8), seq),
    "conv1d": (convolved, lambda b, n: (_rand(b, 3, n),)),
    "pairwise": (lambda: pairwise, flat),
    "masked_mean": (lambda: masked_mean, lambda b, n: (_rand(b, n, 4), _ints(2, b, n).float())),
    "reshape": (lambda: reshape, seq),
    "pad": (lambda: padded, flat),
    "last": (lambda: last, flat),
    "strided": (lambda: strided, flat),
    "flip": (lambda: flipped, flat),
    "cumsum": (lambda: cumulative, flat),
    "causal_mask": (lambda: causal, flat),
    "scatter_add": (lambda: scatter, lambda b, n: (_rand(b, n), _ints(8, b, n))),
    "einsum": (lambda: outer, lambda b, n: (_rand(b, 3), _rand(n, 2))),
    "expand": (lambda: expanded, lambda b, n: (_rand(b, 4), _rand(n, 4))),
    "stack": (lambda: stacked, flat),
    "normalize": (lambda: normalised, seq),
    "written": (lambda: written, flat),
    "sizes_as_values": (lambda: scaled, flat),
    "two_inputs": (lambda: residual, lambda b, n: (_rand(b, n), _rand(b, n))),
    "where": (lambda: where, lambda b, n: (_rand(b, n), _rand(b, n))),
    "repeat": (lambda: repeated, flat),
    "gather": (lambda: lambda x, i: x.gather(1, i), lambda b, n: (_rand(b, 9), _ints(9, b, n))),
}
