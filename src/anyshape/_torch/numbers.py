"""Sizes as numbers of another kind.

Owns a size beside a complex tensor, as the divisor of a mean is: torch's references make it a complex number
(`dtype_to_type_ctor` in _prims_common), and a complex number is never symbolic, so the size would be fixed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
import torch._prims_common as prims_common

_stock = prims_common.dtype_to_type_ctor


def _constructor(dtype: torch.dtype) -> Callable[[Any], Any]:
    stock = _stock(dtype)
    if not dtype.is_complex:
        return stock
    return lambda x: torch.sym_float(x) if isinstance(x, (torch.SymInt, torch.SymFloat)) else stock(x)


def patches() -> contextlib.AbstractContextManager[Any]:
    return mock.patch.object(prims_common, "dtype_to_type_ctor", _constructor)
