"""torch's own database of operators, as samples over sizes.

Owns the access to `torch.testing._internal`: which operators there are, and the same sample of one at several values of
the size constant that samples are built from.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch

_CONSTANTS = ("S",)
# Not deterministic in their values, or not strided.
_LEFT_OUT = ("empty", "new_empty", "empty_like", "empty_strided", "empty_permuted", "segment_reduce", "sparse")


def operators() -> dict[str, Any]:
    """Every operator by its full name."""
    import torch.testing._internal.common_methods_invocations as database

    named = {op.formatted_name: op for op in database.op_db}
    return {n: op for n, op in named.items() if not any(n == out or out in n for out in _LEFT_OUT)}


def samples(op: Any, dtype: torch.dtype, sizes: Sequence[int], most: int) -> list[dict[int, tuple[Any, ...]]]:
    """For each of the first samples its (args, kwargs) at every size at which it is the same sample but for sizes."""
    found: dict[int, list[Any]] = {}
    for size in sizes:
        with _constant(size):
            try:
                found[size] = [
                    ((s.input, *s.args), s.kwargs) for s in op.sample_inputs("cpu", dtype, requires_grad=False)
                ][: 4 * most]
            except Exception:  # not every sample can be built at every size
                found[size] = []
    families = []
    for index, first in enumerate(found[sizes[0]]):
        form = _form(first)
        family = {s: rows[index] for s, rows in found.items() if index < len(rows) and _form(rows[index]) == form}
        shapes = {str([t.shape for t in _tensors(row)]) for row in family.values()}
        if len(shapes) > 1 and all(t.layout is torch.strided for t in _tensors(first)):
            families.append(family)
    return families[:most]


def supports(op: Any, dtype: torch.dtype) -> bool:
    return dtype in op.dtypes


def _form(sample: Any) -> list[Any]:
    from torch.utils import _pytree as pytree

    values = pytree.tree_leaves(sample)
    return [(v.dim(), v.dtype) if isinstance(v, torch.Tensor) else repr(v) for v in values]


def _tensors(sample: Any) -> list[torch.Tensor]:
    from torch.utils import _pytree as pytree

    return [v for v in pytree.tree_leaves(sample) if isinstance(v, torch.Tensor)]


@contextlib.contextmanager
def _constant(size: int) -> Iterator[None]:
    """The size constant of every module of torch's test suite is `size`."""
    modules = [m for n, m in list(sys.modules.items()) if n.startswith("torch.testing._internal")]
    held = [(m, c, getattr(m, c)) for m in modules for c in _CONSTANTS if isinstance(getattr(m, c, None), int)]
    try:
        for module, constant, _ in held:
            setattr(module, constant, size)
        yield
    finally:
        for module, constant, value in held:
            setattr(module, constant, value)
