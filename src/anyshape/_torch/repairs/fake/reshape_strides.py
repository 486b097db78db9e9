"""Strides of reshaped views (`_reshape_view_helper_core_alg`), found without guards on equal sizes.

Owns a repair: torch finds the strides of a view by trying which sizes are equal and which divide which
(`_reshape_view_helper_core_alg`, torch/_refs, 2.11 to 2.15). For `x.reshape(x.shape[::-1])` that is a predicate for
every pair, and another program where sizes happen to be equal. The view of a contiguous tensor is contiguous; nothing
has to be asked. And the strides of a view are all that is found: one call of the graph, which can be looked at again at
other sizes whatever was asked.
"""

from __future__ import annotations

import collections
import sys
from typing import Any
from unittest import mock

import torch
import torch._refs as refs
from torch._prims_common import is_contiguous_or_false, make_contiguous_strides_for

from anyshape._torch.fake_runs import concrete
from anyshape._torch.repairs.registry import repair
from anyshape._torch.symbolic.shape_env import FreeShapeEnv

_stock_core_alg = getattr(refs, "_reshape_view_helper_core_alg", None)


@repair(
    "torch._refs:_reshape_view_helper_core_alg",
    scope="capture",
    phase="fake run",
    broken="2.11-2.15",
    symptom="`x.reshape(x.shape[::-1])` has a predicate for every pair of sizes, and a program where some are equal.",
    cause="_refs/__init__.py:_reshape_view_helper_core_alg tries which sizes are equal and which divide which.",
    cure="The view of a contiguous tensor is contiguous; else nothing but strides is found.",
    goes="when the view of a contiguous tensor is not searched for",
    absent="skip",
)
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
