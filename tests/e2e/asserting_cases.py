"""Functions whose `assert` is Python's own: pytest rewrites those of its test files."""

from __future__ import annotations

import torch


def asserted(x: torch.Tensor) -> torch.Tensor:
    n = x.sum().long().item()
    assert n < 3, "too many"
    return x + n


def written_then_asserted(x: torch.Tensor) -> torch.Tensor:
    n = x.sum().long().item()
    x += 1
    assert n < 3
    return x + n


def drawn_then_asserted(x: torch.Tensor) -> torch.Tensor:
    y = x + torch.rand(())
    assert x.sum().long().item() < 3
    return y


class Refuses(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return asserted(x)
