"""Slices with symbolic bounds, clamped as in eager instead of becoming unbacked.

Owns the meaning of `x[start:stop]` for free sizes. torch's fake implementation (fake_impls.py,
`_compute_slice_index`) makes an unbacked size when it cannot tell the sign of a bound or whether it lies inside; here
the bound is clamped as eager clamps it, and only the sign is a question.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses import fake_impls
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

from anyshape._torch.repairs.registry import repair

_stock_index = fake_impls._compute_slice_index


@repair(
    "torch._subclasses.fake_impls:_compute_slice_index",
    scope="capture",
    phase="fake run",
    broken="2.11-2.15",
    symptom="`x[start:stop]` has a size that nothing is known of.",
    cause="fake_impls.py:_compute_slice_index makes an unbacked size when it cannot tell where a bound lies.",
    cure="The bound is clamped as eager clamps it, and only its sign is a question.",
    goes="when _compute_slice_index clamps symbolic bounds",
)
def index(size: Any, bound: Any) -> Any:
    """A slice bound within 0 and `size`."""
    if any(isinstance(n, torch.SymInt) and free_unbacked_symbols(n) for n in (size, bound)):
        return _stock_index(size, bound)
    if bound < 0:
        inside = statically_known_true(bound + size >= 0)
        return bound + size if inside else torch.sym_max(bound + size, 0)
    return bound if statically_known_true(bound <= size) else torch.sym_min(bound, size)
