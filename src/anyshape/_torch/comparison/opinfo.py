"""torch's OpInfo database, as samples over sizes.

Owns the access to `torch.testing._internal`: which operators there are, and the same sample of one at several sizes:
built from other values of the constants that samples are built from or, where they are built from none, cut to size.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

_MOST_CUT = 64  # the first are often scalars
_CONSTANTS = (("S",), ("S", "M", "L"))  # of which samples are built, and the less usual
# By a part of their name. Some of their values are whatever memory held, or they are not strided.
_LEFT_OUT = ("empty", "resize_", "segment_reduce", "sparse")


def operators() -> dict[str, Any]:
    """Every operator by its full name."""
    import torch.testing._internal.common_methods_invocations as database

    named = {op.formatted_name: op for op in database.op_db}
    return {n: op for n, op in named.items() if not any(part in n for part in _LEFT_OUT)}


Sample = tuple[tuple[Any, ...], dict[str, Any]]  # (args, kwargs)


def samples(op: Any, dtype: torch.dtype, sizes: Sequence[int], most: int) -> list[dict[int, Sample]]:
    """For each of the first samples its (args, kwargs) at every size at which it is the same sample but for sizes."""
    for constants in _CONSTANTS:
        built = {size: _built(op, dtype, constants, size)[: 4 * most] for size in sizes}
        found = []
        for index, first in enumerate(built[sizes[0]]):
            form = _form(first)
            family = {s: rows[index] for s, rows in built.items() if index < len(rows) and _form(rows[index]) == form}
            found.append(family)
        if changing := [family for family in found if _changes(family)]:
            return changing[:most]
    cut = [{size: _cut(sample, size) for size in sizes} for sample in _built(op, dtype, (), 0)[:_MOST_CUT]]
    return [family for family in cut if _changes(family)][:most]


def _built(op: Any, dtype: torch.dtype, constants: Sequence[str], size: int) -> list[Sample]:
    """Samples with `size` for these constants."""
    with _constants(constants, size):
        try:
            drawn = op.sample_inputs("cpu", dtype, requires_grad=False)
            return [((s.input, *s.args), s.kwargs) for s in drawn]
        except Exception:  # not every sample can be built at every size
            return []


def _changes(family: dict[int, Sample]) -> bool:
    strided = all(t.layout is torch.strided for row in family.values() for t in _tensors(row))
    return strided and len({str([t.shape for t in _tensors(row)]) for row in family.values()}) > 1


def _cut(sample: Sample, size: int) -> Sample:
    """The first dim of the first tensor, and of all that are as long there, is `size` long: shorter, or begun again.

    Integers are kept below that: they may be places in it, and eager does not look at all of them.
    """
    tensors = [t for t in _tensors(sample) if t.layout is torch.strided and t.dim() and len(t)]
    if not tensors:
        return sample
    length = len(tensors[0])

    def cut(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            return value
        if value is not tensors[0] and value.dtype in (torch.int64, torch.int32):
            value = value.clamp(max=max(size - 1, 0))
        return value[torch.arange(size) % length] if value.dim() and len(value) == length else value

    return tree_map(cut, sample)  # type: ignore[no-any-return]


def supports(op: Any, dtype: torch.dtype) -> bool:
    return dtype in op.dtypes


def _form(sample: Any) -> list[Any]:
    values = tree_leaves(sample)
    return [(v.dim(), v.dtype) if isinstance(v, torch.Tensor) else repr(v) for v in values]


def _tensors(sample: Any) -> list[torch.Tensor]:
    return [v for v in tree_leaves(sample) if isinstance(v, torch.Tensor)]


@contextlib.contextmanager
def _constants(names: Sequence[str], size: int) -> Iterator[None]:
    """These constants of every module of torch's test suite are `size`."""
    modules = [m for n, m in list(sys.modules.items()) if n.startswith("torch.testing._internal")]
    held = [(m, c, getattr(m, c)) for m in modules for c in names if isinstance(getattr(m, c, None), int)]
    try:
        for module, constant, _ in held:
            setattr(module, constant, size)
        yield
    finally:
        for module, constant, value in held:
            setattr(module, constant, value)
