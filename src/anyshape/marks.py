"""`mark_dynamic`, `mark_unbacked`, `mark_static`: torch's marks on tensors, with anyshape's meaning.

Owns the three public functions. What a mark means to a capture is in `_torch/symbolic/dim_marks`, where torch's own are
read too.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from anyshape._torch.symbolic.dim_marks import Mark, mark


def mark_dynamic(
    tensor: torch.Tensor,
    dim: int | Sequence[int],
    *,
    min: int | None = None,
    max: int | None = None,
    hint: int | None = None,
    name: str | None = None,
) -> None:
    """Declare a range and a hint of a size. Dims with the same `name` have the same size."""
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
    """Make a size oblivious: the compiler may not guard on it."""
    mark(tensor, dim, Mark("unbacked", min, max, hint, name))


def mark_static(tensor: torch.Tensor, dim: int | Sequence[int] | None = None) -> None:
    """Make a size static. Without `dim`, make all sizes static."""
    mark(tensor, tuple(range(tensor.dim())) if dim is None else dim, Mark("static"))
