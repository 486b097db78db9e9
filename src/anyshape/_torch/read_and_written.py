"""Calls that read what they write.

Owns one repair: where nobody reads a tensor after `index_put`, Inductor writes over it (fx_passes/reinplace.py, torch
2.11 to 2.15), and does not ask whether the values are of the same memory. `y.index_copy(0, i, y)` then reads what it
has just written. Such a call keeps its copy.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
import torch._inductor.fx_passes.reinplace as reinplace
from torch.utils import _pytree as pytree

_WRITES = ("index_put", "_unsafe_index_put")


def _storage(node: Any) -> Any:
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def _is_read_too(node: torch.fx.Node) -> bool:
    written, *read = [_storage(n) for n in pytree.tree_leaves((node.args, node.kwargs))]
    return written is not None and written in read


def _unless_read(stock: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda node: not _is_read_too(node) and stock(node)


def patches() -> contextlib.AbstractContextManager[Any]:
    known = reinplace.inplaceable_ops
    calls = [op for name in _WRITES if (op := getattr(torch.ops.aten, name).default) in known]
    changed = {op: dataclasses.replace(known[op], extra_check=_unless_read(known[op].extra_check)) for op in calls}
    return mock.patch.dict(known, changed)
