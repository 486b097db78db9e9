"""Marks on tensors, for people who come from torch.

Owns the three public functions. What a mark means to a capture is in `_torch/marks`, where torch's own are read too.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from anyshape._torch.marks import Mark, mark


def mark_dynamic(
    tensor: torch.Tensor,
    dim: int | Sequence[int],
    *,
    min: int | None = None,
    max: int | None = None,
    hint: int | None = None,
    name: str | None = None,
) -> None:
    """A size that varies, within `min` and `max`; dims of one `name` are one size. Sizes vary without a mark too."""
    mark(tensor, dim, Mark("dynamic", min, max, hint, name))


def mark_unbacked(
    tensor: torch.Tensor,
    dim: int | Sequence[int],
    *,
    min: int | None = None,
    max: int | None = None,
    hint: int | None = None,
    name: str | None = None,
) -> None:
    """A size that the compiler may not ask about: oblivious semantics for this dim."""
    mark(tensor, dim, Mark("unbacked", min, max, hint, name))


def mark_static(tensor: torch.Tensor, dim: int | Sequence[int] | None = None) -> None:
    """A size that is always what it is now; without a dim all of them."""
    mark(tensor, tuple(range(tensor.dim())) if dim is None else dim, Mark("static"))
