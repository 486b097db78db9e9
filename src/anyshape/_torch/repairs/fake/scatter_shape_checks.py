"""Shape checks of `index_put`, `index_add`, scatters and losses that meta kernels leave out.

Owns one repair (torch 2.11 to 2.15): eager insists that values fit where `x[index] = values`, `index_put`, `index_add`
and the `_scatter` calls put them, and the fake kernels do not look, so that Inductor's code reads beyond the values.
Nor do those of `soft_margin_loss` and `addmv`, whose results have the size of one operand. What eager insists on is
asked here, with the questions of other calls.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from anyshape._torch.graphs import subscripts
from anyshape.assumptions.answers import name_of

_SETS = (operator.setitem, subscripts.setitem)


def require(call: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Have a call insist on the sizes that eager insists on."""
    if call in _SETS:
        _require_broadcast(*args)
        return
    check = _CHECKS.get(str(name_of(call)).removesuffix("_"))
    if check is not None and args and isinstance(args[0], torch.Tensor):
        check(*args, **kwargs)


def _require_broadcast(tensor: Any, key: Any, values: Any) -> None:
    parts = subscripts.key_parts(key)
    if not isinstance(tensor, torch.Tensor) or not any(map(_chooses, parts)):
        return
    if _has_places(values) and not any(map(_masks, parts)):
        place = tensor[key]
        while values.dim() > place.dim() and values.shape[0] == 1:
            values = values[0]
        values.expand(place.shape)


def _index_put(input: Any, indices: Any, values: Any, accumulate: bool = False) -> None:
    if _has_places(values) and not any(map(_masks, indices)):
        values.expand(input[tuple(slice(None) if index is None else index for index in indices)].shape)


def _index_add(input: Any, dim: Any, index: Any, source: Any, *args: Any, **kwargs: Any) -> None:
    if isinstance(source, torch.Tensor) and source.dim() == input.dim() > 0:
        among = [d for d in range(input.dim()) if d != dim % input.dim()]
        _require_same([source.shape[d] for d in among], [input.shape[d] for d in among])


def _select_scatter(input: Any, src: Any, dim: int, index: Any) -> None:
    _require_same(src.shape, input.select(dim, index).shape)


def _slice_scatter(input: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> None:
    _require_same(src.shape, torch.ops.aten.slice.Tensor(input, dim, start, end, step).shape)


def _diagonal_scatter(input: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> None:
    _require_same(src.shape, input.diagonal(offset, dim1, dim2).shape)


def _soft_margin_loss(input: Any, target: Any, *args: Any, **kwargs: Any) -> None:
    target.expand(input.shape)


def _addmv(input: Any, mat: Any, *args: Any, **kwargs: Any) -> None:
    if mat.dim() == 2:
        input.expand(mat.shape[:1])


_CHECKS: dict[str, Callable[..., None]] = {
    "soft_margin_loss": _soft_margin_loss,
    "addmv": _addmv,
    "index_put": _index_put,
    "index_add": _index_add,
    "index_reduce": _index_add,
    "select_scatter": _select_scatter,
    "slice_scatter": _slice_scatter,
    "diagonal_scatter": _diagonal_scatter,
}


def _require_same(given: Sequence[Any], wanted: Sequence[Any]) -> None:
    told = lambda: f"expected a size of {tuple(wanted)} for what is written, got {tuple(given)}"
    torch._check(len(given) == len(wanted), told)
    for one, other in zip(given, wanted, strict=True):
        torch._check(one == other, told)


def _has_places(values: Any) -> bool:
    return isinstance(values, torch.Tensor) and values.dim() > 0


def _chooses(part: Any) -> bool:
    return isinstance(part, (list, torch.Tensor))


def _masks(part: Any) -> bool:
    """Whether how many places there are comes out of the data: there eager's own kernel writes."""
    return isinstance(part, torch.Tensor) and part.dtype in (torch.bool, torch.uint8)
