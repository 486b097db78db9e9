"""What the tests of artifacts precompile. In a module of its own, so that another process finds the same source."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

FACTOR = 3


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * FACTOR


def branching(x: torch.Tensor, y: torch.Tensor, k: int = 3) -> dict[str, Any]:
    if x.shape[0] > 8:
        return {"a": x @ y, "b": (x.relu(), k)}
    return {"a": scaled(x @ y).sin() * k, "b": None}


def writes(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    out += x
    return out[1:]


def picks(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return x[i] * 2


def breaks(x: torch.Tensor) -> torch.Tensor:
    print("a graph break")
    return x + 1


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(x)).relu()


class Net(nn.Module):
    """A block and a branch on the length."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(1))
        self.scale = 0.5
        self.register_buffer("shift", torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > 16:
            x = x - x.mean(1, keepdim=True)
        for block in self.blocks:
            x = block(x)
        return x * self.scale + self.shift


def net() -> Net:
    torch.manual_seed(0)
    return Net()
