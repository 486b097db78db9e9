"""Lowerings whose numbers differ from eager's: truncating division, negative indices, norms of high order.

Owns three repairs. A division of ints that rounds to zero is C++'s own, which ends the process where the divisor is 0:
it is made of the one that rounds down, which says so. `index_select` counts from the end where an index is negative,
which eager refuses. And a norm of another order than 0, 1, 2 and infinity is a sum of powers, also of one element, of
which eager takes the absolute value: powers of a high order do not fit.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch._inductor.lowering as inductor_lowering
from torch._inductor.virtualized import ops

from anyshape._torch.repairs.registry import repair

_aten = torch.ops.aten
_SELECT, _NORM = _aten.index_select.default, _aten.linalg_vector_norm.default
_stock_truncdiv: Any = inductor_lowering.truncdiv
_ORDERS = (0, 1, 2, math.inf, -math.inf)


def _rounded_to_zero(dtype: torch.dtype) -> Any:
    def inner(a: Any, b: Any) -> Any:
        zero, one = ops.constant(0, dtype), ops.constant(1, dtype)
        quotient = ops.floordiv(a, b)
        rest = ops.sub(a, ops.mul(quotient, b))
        is_less = ops.and_(ops.ne(rest, zero), ops.lt(quotient, zero))
        return ops.where(is_less, ops.add(quotient, one), quotient)

    return inductor_lowering.make_pointwise(inner)


@repair(
    "torch._inductor.lowering:truncdiv",
    scope="compile",
    phase="lowering",
    broken="2.11-2.15",
    symptom='`torch.div(a, 0, rounding_mode="trunc")` of ints ends the process.',
    cause="lowering.py:truncdiv is C++'s own division, which traps where the divisor is 0.",
    cure="On CPUs it is made of the division that rounds down, which raises.",
    goes="when codegen/cpp.py checks the divisor of a truncated division",
)
def _truncdiv(a: Any, b: Any) -> Any:
    tensors = [x for x in (a, b) if hasattr(x, "get_device") and x.get_device() is not None]
    if not tensors or any(t.get_device().type != "cpu" for t in tensors):
        return _stock_truncdiv(a, b)
    return _rounded_to_zero(tensors[0].get_dtype())(a, b)


@repair(
    "torch._inductor.decomposition:decompositions[aten.index_select.default]",
    scope="compile",
    phase="lowering",
    broken="2.11-2.15",
    symptom="`x.index_select(0, i)` with a negative index gives rows from the end; eager raises.",
    cause="decomposition.py:index_select is x[i], which counts from the end.",
    cure="A negative index becomes one that is out of bounds.",
    goes="when the decomposition checks its index",
    absent="skip",
)
def _select(stock: Any) -> Any:
    def index_select(x: Any, dim: int, index: Any) -> Any:
        if x.dim() == 0 or index.dtype.is_floating_point:
            return stock(x, dim, index)
        return stock(x, dim, torch.where(index < 0, x.shape[dim], index))  # which is beyond it

    return index_select


@repair(
    "torch._inductor.decomposition:decompositions[aten.linalg_vector_norm.default]",
    scope="compile",
    phase="lowering",
    broken="2.11-2.15",
    symptom="A norm of a high order of one element is infinite or 0; eager gives its absolute value.",
    cause="_decomp/decompositions.py:linalg_vector_norm is a sum of powers, also of one element.",
    cure="Of one element the absolute value is taken.",
    goes="when the decomposition does so",
    absent="skip",
)
def _norm(stock: Any) -> Any:
    def vector_norm(x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        powers = stock(x, ord, dim, keepdim, dtype=dtype)
        if ord in _ORDERS:
            return powers
        dims = range(x.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
        count = math.prod(x.shape[d] for d in dims)
        if isinstance(count, int):
            return stock(x, 1, dim, keepdim, dtype=dtype) if count == 1 else powers
        one = torch.full((), count, device=x.device) == 1  # not a question: one program is for all sizes
        return torch.where(one, stock(x, 1, dim, keepdim, dtype=dtype), powers)

    return vector_norm
