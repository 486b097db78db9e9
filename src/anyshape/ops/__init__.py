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
    given_numbers,
    given_sizes,
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

# For calls that are given a number which is symbolic.
SIZE_RULES: dict[Any, Callable[..., Any]] = {**given_sizes.RULES, **given_numbers.RULES}
# For calls that are given a float which is symbolic.
FLOAT_RULES: dict[Any, Callable[..., Any]] = dict(given_numbers.OF_FLOATS)
# For calls about sizes that may not be asked about.
OBLIVIOUS_RULES: dict[Any, Callable[..., Any]] = dict(squeezing.RULES)


def all_rules() -> tuple[dict[Any, Callable[..., Any]], ...]:
    """Those for all calls, for those given a size, for those given a float, and for those about oblivious sizes."""
    return RULES, SIZE_RULES, FLOAT_RULES, OBLIVIOUS_RULES


__all__ = ["FLOAT_RULES", "OBLIVIOUS_RULES", "RULES", "SIZE_RULES", "all_rules"]
