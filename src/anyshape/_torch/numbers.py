"""Sizes as numbers of another kind.

Owns `divmod` of a size, which Dynamo does not know, and a size beside a complex tensor, as the divisor of a mean is:
torch's references make it a complex number (`dtype_to_type_ctor` in _prims_common), and a complex number is never
symbolic, so the size would be fixed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
import torch._prims_common as prims_common
from torch._dynamo.variables.base import ValueMutationNew
from torch._dynamo.variables.lists import TupleVariable
from torch._dynamo.variables.tensor import SymNodeVariable

_stock = prims_common.dtype_to_type_ctor


def _constructor(dtype: torch.dtype) -> Callable[[Any], Any]:
    stock = _stock(dtype)
    if not dtype.is_complex:
        return stock
    return lambda x: torch.sym_float(x) if isinstance(x, (torch.SymInt, torch.SymFloat)) else stock(x)


def _divmod(self: Any, tx: Any, other: Any, reverse: bool = False) -> Any:
    return TupleVariable(
        [self.nb_floor_divide_impl(tx, other, reverse), self.nb_remainder_impl(tx, other, reverse)],
        mutation_type=ValueMutationNew(),
    )


@contextlib.contextmanager
def patches() -> Iterator[None]:
    """For a capture."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(prims_common, "dtype_to_type_ctor", _constructor))
        if hasattr(SymNodeVariable, "nb_divmod_impl"):
            stack.enter_context(mock.patch.object(SymNodeVariable, "nb_divmod_impl", _divmod))
        yield
