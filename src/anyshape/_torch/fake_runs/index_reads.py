"""Operators that read at indices (gather, embedding, take), which fail for an empty source.

Owns which calls read one tensor at places that another holds, and which sizes have to be there for that: an index into
nothing fails whatever it is, and no indices never do. Fake tensors cannot tell, for they have no indices.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree

from anyshape.assumptions.answers import name_of


@dataclasses.dataclass(frozen=True)
class Reads:
    """The sizes that indices go into, and how many there are of each: where there are none of one, nothing is read."""

    sizes: Sequence[Any]
    counts: Sequence[Any]

    def into_nothing(self, is_zero: Callable[[Any], bool | None]) -> bool:
        """Whether there are indices and nothing for them; numbers that are not known may be 0."""
        return any(is_zero(n) is True for n in self.sizes) and all(is_zero(n) is False for n in self.counts)


def _of_dims(given: dict[str, Any]) -> Reads:
    """`index.Tensor`: only the dims that have an index are read at one."""
    pairs = list(zip(given["self"].shape, given["indices"], strict=False))
    return Reads([n for n, i in pairs if i is not None], [i.numel() for _, i in pairs if i is not None])


def _of_dim(given: dict[str, Any]) -> Reads:
    read = given["self"]
    return Reads([read.shape[given["dim"]] if read.dim() else 1], [given["index"].numel()])


def _of_all(given: dict[str, Any]) -> Reads:
    return Reads(list(given["self"].shape), [given["index"].numel()])


def _of_rows(given: dict[str, Any]) -> Reads:
    return Reads([given["weight"].shape[0]], [given["indices"].numel()])


Reader = tuple[Callable[[dict[str, Any]], Reads], tuple[str, ...]]
_ROWS: Reader = (_of_rows, ("weight", "indices"))
_READERS: dict[str, Reader] = {
    "index": (_of_dims, ("self", "indices")),
    "_unsafe_index": (_of_dims, ("self", "indices")),
    "index_select": (_of_dim, ("self", "dim", "index")),
    "gather": (_of_dim, ("self", "dim", "index")),
    "take": (_of_all, ("self", "index")),
    "embedding": _ROWS,
    "embedding_renorm_": _ROWS,
    "embedding_bag": _ROWS,
    "_embedding_bag": _ROWS,
    "_embedding_bag_forward_only": _ROWS,
}
# The functions of the same names take the indices first.
_BY_FUNCTION: dict[Any, Reader] = dict.fromkeys((F.embedding, F.embedding_bag), (_of_rows, ("indices", "weight")))
_OTHER_NAMES = {"input": "self"}
# Which of the elements are read is told by a mask as well: whether there is one is looked at with all that is given.
_BY_A_MASK = ("_unsafe_masked_index",)


def require(call: Any, args: Any, kwargs: Any) -> None:
    """Have a call insist on what eager insists on: that there is something to read, or no index."""
    read = of(call, args, kwargs)
    if read is None or not any(isinstance(n, torch.SymInt) for n in read.sizes):
        return
    for size in read.sizes:
        torch._check(
            functools.reduce(operator.or_, (n == 0 for n in read.counts), size != 0), lambda: "nothing to read"
        )


def of(call: Any, args: Any, kwargs: Any) -> Reads | None:
    """What a call with these arguments reads at; None where it does not."""
    reader = _reader(call)
    if reader is None:
        if name_of(call) not in _BY_A_MASK:
            return None
        tensors = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        return Reads(list(tensors[0].shape), [t.numel() for t in tensors[1:]])
    function, names = reader
    other = {"input": "indices"} if call in _BY_FUNCTION else _OTHER_NAMES
    return function(dict(zip(names, args, strict=False)) | {other.get(n, n): value for n, value in kwargs.items()})


def _reader(call: Any) -> Reader | None:
    by_function = None if isinstance(call, str) else _BY_FUNCTION.get(call)
    return by_function or _READERS.get(name_of(call))
