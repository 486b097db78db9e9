"""Explicit semantics for calls that torch answers for one size at a time.

Owns the table of rules. A rule is a plain function with the signature of the call it stands for, written in torch
calls that hold for every size; it is traced in the place of the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyshape.ops import (
    attention,
    comparison,
    dropping,
    fourier,
    indexing,
    layouts,
    lengths,
    pooling,
    reduction,
    squeezing,
)

RULES: dict[Any, Callable[..., Any]] = {
    **attention.RULES,
    **comparison.RULES,
    **dropping.RULES,
    **fourier.RULES,
    **indexing.RULES,
    **layouts.RULES,
    **lengths.RULES,
    **pooling.RULES,
    **reduction.RULES,
}

# For calls about sizes that may not be asked about.
OBLIVIOUS_RULES: dict[Any, Callable[..., Any]] = dict(squeezing.RULES)

__all__ = ["OBLIVIOUS_RULES", "RULES"]
