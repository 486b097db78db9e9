"""Reshapes to the same sizes in another order.

Owns a repair: torch finds the strides of a view by trying which sizes are equal and which divide which
(`_reshape_view_helper_core_alg`, torch/_refs, 2.11 to 2.15). For `x.reshape(x.shape[::-1])` that is a predicate for
every pair, and another program where sizes happen to be equal. The view of a contiguous tensor is contiguous; nothing
has to be asked. And the strides of a view are all that is found: one call of the graph, which can be looked at again at
other sizes whatever was asked.
"""

from __future__ import annotations

import collections
import contextlib
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import torch._refs as refs
from torch._prims_common import is_contiguous_or_false, make_contiguous_strides_for

from anyshape._torch import concrete
from anyshape._torch.shape_env import FreeShapeEnv

_stock_core_alg = getattr(refs, "_reshape_view_helper_core_alg", None)


def _core_alg(a: Any, shape: Any, allow_copy: bool) -> Any:
    assert _stock_core_alg is not None
    before, after = ([concrete.number_expr(n) for n in sizes] for sizes in (a.shape, shape))
    reordered = before != after and collections.Counter(before) == collections.Counter(after)
    if reordered and is_contiguous_or_false(a):
        return torch.as_strided(a, shape, make_contiguous_strides_for(shape))
    env = getattr(getattr(a, "fake_mode", None), "shape_env", None)
    if not isinstance(env, FreeShapeEnv) or sys._getframe(2).f_code.co_name != "_view_meta":
        return _stock_core_alg(a, shape, allow_copy)
    with mock.patch.object(env.recording, "finding_strides", True):
        return _stock_core_alg(a, shape, allow_copy)


@contextlib.contextmanager
def patches() -> Iterator[None]:
    """While a capture runs."""
    if _stock_core_alg is None:  # without it there are more predicates, and all is right
        yield
        return
    with mock.patch.object(refs, "_reshape_view_helper_core_alg", _core_alg):
        yield
