"""The behavior of an eager call: its aten calls with ranks, broadcasts, stride order and aliases.

Owns a signature of one eager call: the aten calls it comes down to, with ranks, broadcasts, memory order and shared
memory, and without the sizes themselves. Calls with equal signatures are one behavior.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


class _Log(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        made = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        self.calls.append(
            (
                str(func),
                _broadcasts(given),
                tuple(map(_form, given)),
                tuple((_form(t), _source(t, given)) for t in made),
                _kept_strides(given[0], made[0]) if str(func) == "aten.view.default" else None,
            )
        )
        return result


@contextmanager
def watching() -> Iterator[list[Any]]:
    """The signature of what runs inside, when it has run."""
    with _Log() as log:
        yield log.calls


def _form(tensor: torch.Tensor) -> Any:
    if tensor.layout is not torch.strided:
        return str(tensor.layout)
    addressed = [i for i, n in enumerate(tensor.shape) if n > 1]
    order = tuple(sorted(addressed, key=lambda i: (-tensor.stride(i), i)))
    return tensor.dim(), tensor.dtype, order, tuple(tensor.stride(i) == 0 for i in addressed), tensor.numel() == 0


def _kept_strides(given: torch.Tensor, made: torch.Tensor) -> Any:
    """Which dims of a view lie as one of what it is a view of, where that has gaps: the others are made of several."""
    if given.is_contiguous() or made.numel() == 0:
        return None
    there = [given.stride(i) for i, n in enumerate(given.shape) if n > 1]
    strides = (s for s, n in zip(made.stride(), made.shape, strict=True) if n > 1)
    return tuple(there.index(s) if s in there else None for s in strides)


def _broadcasts(tensors: Sequence[torch.Tensor]) -> Any:
    """Which dims of which arguments are stretched to those of the others."""
    shapes = [tuple(reversed(t.shape)) for t in tensors]
    longest = max(map(len, shapes), default=0)
    columns = [[s[i] if i < len(s) else 1 for s in shapes] for i in range(longest)]
    return tuple(tuple(n == 1 for n in c) if len(set(c)) > 1 else None for c in columns)


def _source(tensor: torch.Tensor, given: Sequence[torch.Tensor]) -> int | None:
    if tensor.layout is not torch.strided:
        return None
    pointer = tensor.untyped_storage()._cdata
    return next((i for i, t in enumerate(given) if t.untyped_storage()._cdata == pointer), None)
