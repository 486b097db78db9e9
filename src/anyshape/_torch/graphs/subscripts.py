"""Subscripts by symbolic and by unbacked numbers (`x[:, n - 1]`, `x[i.item()]`), with bounds checks.

Owns four repairs (torch 2.11 to 2.15; the last for 2.11). `x[:, n - 1]` and `x[:, [0, n - 1]]` read the number as a
plain int, which pins it, and `x[n - 1]` makes a number out of data of where that lies: they are selected here, from the
front. `x.select(0, i)` of an unbacked size, and `x[i]` for a number read from a tensor, are captured without a
look at the bounds, and Inductor's code reads beyond them: they are required here. A requirement that fails at run time
is a RuntimeError there, where eager raises IndexError: which calls are subscripts is told here. And torch 2.11 does not
look at the bounds of `x.select(0, 2)` at all.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from typing import Any

import torch

from anyshape._torch.repairs.registry import repair
from anyshape.assumptions.answers import name_of


def getitem(tensor: torch.Tensor, key: Any) -> torch.Tensor:
    """`tensor[key]`, with numbers that are symbolic selected."""
    selected, rest = _selected(tensor, key)
    return selected[rest] if rest else selected


def setitem(tensor: torch.Tensor, key: Any, value: Any) -> None:
    """`tensor[key] = value`, with numbers that are symbolic selected."""
    selected, rest = _selected(tensor, key)
    selected[rest or ...] = value


_SUBSCRIPTS = (operator.getitem, operator.setitem, getitem, setitem)
_SELECTED = {operator.getitem: getitem, operator.setitem: setitem}
_SELECTS = {"select": ("dim", "index"), "select_copy": ("dim", "index"), "select_scatter": ("src", "dim", "index")}


def rewritten(call: Any, args: Any) -> Any:
    """The call that a subscript is captured as."""
    if call not in (operator.getitem, operator.setitem) or not isinstance(args[0], torch.Tensor):
        return call
    tensor, parts = args[0], key_parts(args[1])
    if sum(map(_dims_taken, parts)) > tensor.dim():
        return call  # eager's own error
    numbers = [index for _, _, index in numbers_of(tensor, parts)]
    numbers += [index for part in parts if isinstance(part, list) for index in part]
    return _SELECTED[call] if any(isinstance(index, torch.SymInt) for index in numbers) else call


def is_subscript(call: Any) -> bool:
    """Whether a call raises IndexError for an index out of bounds, and asks about sizes for nothing else."""
    return call in _SUBSCRIPTS or name_of(call) in _SELECTS


def takes_key(call: Any) -> bool:
    return call in _SUBSCRIPTS


def _are_born(*numbers: Any) -> bool:
    """Whether some come out of the data; a module of the compiler tells, which code out of an artifact does without."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return bool(free_unbacked_symbols(numbers))


def require_in_bounds(call: Any, args: Any, kwargs: Any) -> None:
    """Have a call insist on what eager insists on where only the data tells."""
    if not is_subscript(call) or not isinstance(args[0], torch.Tensor):
        return
    for size, index in _indexed(call, args, kwargs):
        if _are_born(size, index):
            torch._check(index < size)
            torch._check(-size <= index)


def dims_left(tensor: torch.Tensor, key: Any) -> list[int]:
    """The dims that the numbers of a key leave."""
    selected = {dim for _, dim, _ in numbers_of(tensor, key_parts(key))}
    return [dim for dim in range(tensor.dim()) if dim not in selected]


@functools.cache
def _are_looked_at() -> bool:
    """Whether a selection out of bounds is known to be one when it is captured."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        try:
            torch.empty(0).select(0, 0)
        except IndexError:
            return True
        return False


@repair(
    "torch._subclasses.fake_impls:op_implementations_dict[aten.select.int]",
    scope="capture",
    phase="fake run",
    broken="2.11",
    symptom="`x.select(0, 2)` out of bounds is captured, and gives what lies behind.",
    cause="fake_impls.py has no look at the bounds of a selection.",
    cure="A selection out of bounds raises IndexError when it is captured.",
    goes="with torch 2.11",
    absent="skip",
    needed=lambda: not _are_looked_at(),
)
def select(stock: Any) -> Any:
    def selected(mode: Any, func: Any, tensor: Any, dim: int, index: Any) -> Any:
        if tensor.dim() and type(index) is int:
            torch._check_index(index < tensor.size(dim))
            torch._check_index(-tensor.size(dim) <= index)
        return stock(mode, func, tensor, dim, index)

    return selected


def _indexed(call: Any, args: Any, kwargs: Any) -> Iterator[tuple[Any, Any]]:
    """Each size that is indexed by a number, with that number."""
    tensor, *given = args
    if call in _SUBSCRIPTS:
        yield from ((tensor.shape[dim], index) for _, dim, index in numbers_of(tensor, key_parts(given[0])))
        return
    words = {**dict(zip(_SELECTS[name_of(call)], given, strict=False)), **kwargs}
    axis = words.get("dim")
    if type(axis) is int and -tensor.dim() <= axis < tensor.dim() and "index" in words:
        yield tensor.shape[axis], words["index"]


def _selected(tensor: torch.Tensor, key: Any) -> tuple[torch.Tensor, tuple[Any, ...]]:
    """What the symbolic numbers of a key select, and the rest of it."""
    parts = key_parts(key)
    found = [n for n in numbers_of(tensor, parts) if isinstance(n[2], torch.SymInt)]
    for _, dim, index in reversed(found):
        tensor = tensor.select(dim, _from_the_front(tensor.shape[dim], index))
    places = {place for place, _, _ in found}
    return tensor, tuple(_as_tensor(part, tensor) for place, part in enumerate(parts) if place not in places)


def _as_tensor(part: Any, tensor: torch.Tensor) -> Any:
    """A list of numbers, of which some are symbolic, as the tensor that eager makes of it."""
    if not isinstance(part, list) or not any(isinstance(n, torch.SymInt) for n in part):
        return part
    return torch.stack([torch.scalar_tensor(n, dtype=torch.int64, device=tensor.device) for n in part])


def _from_the_front(size: Any, index: Any) -> Any:
    """An index that is seen to be none from behind; how one that is born from data is counted, only the data tells."""
    if _are_born(size, index):
        return index
    torch._check(-size <= index)
    return torch.sym_max(index + size if index < 0 else index, 0)


def key_parts(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def numbers_of(tensor: torch.Tensor, key: tuple[Any, ...]) -> Iterator[tuple[int, int, Any]]:
    """The numbers of a key: where each stands, the dim that it indexes, and itself."""
    left = tensor.dim() - sum(map(_dims_taken, key))  # what an ellipsis stands for
    dim = 0
    for place, part in enumerate(key):
        if isinstance(part, (int, torch.SymInt)) and not isinstance(part, bool) and dim < tensor.dim():
            yield place, dim, part
        dim += left if part is Ellipsis else _dims_taken(part)


def _dims_taken(part: Any) -> int:
    if part is None or part is Ellipsis or isinstance(part, (bool, torch.SymBool)):
        return 0
    return part.dim() if isinstance(part, torch.Tensor) and part.dtype in (torch.bool, torch.uint8) else 1
