"""Kinds of questions about symbolic sizes, and the code of torch that asks them.

Owns what can be told of a question by itself: what it is about, what follows from it, and which code of torch asks it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy

# Code of torch that works out sizes, strides and dtypes, and calls nothing: what it came to shows in its results.
METADATA = ("torch/_prims_common/__init__.py", "torch/_subclasses/fake_impls.py", "torch/_meta_registrations.py")
# Code that runs a call on what stands for a tensor that may be written to.
FUNCTIONAL = ("torch/_subclasses/functional_tensor.py",)


def is_in(files: tuple[str, ...], where: str) -> bool:
    """Whether a file and line is of one of these."""
    return where.rpartition(":")[0].endswith(files)


def is_unit_question(expr: sympy.Basic, truth: sympy.Basic) -> bool:
    """Whether some size is asked to be 0 or 1, where it is."""
    return isinstance(expr, sympy.Eq) and len(expr.free_symbols) == 1 and truth == sympy.true


def ends_a_part(expr: sympy.Basic, lengths: set[int], locate: Callable[[], tuple[Any, str]]) -> bool:
    """Whether functionalization asks if one of the parts that a tensor was split in ends beyond it: it ends there.

    Where both ends are one, either answer says so (FunctionalInverses.cpp, `split_inverse`).
    """
    ends = isinstance(expr, sympy.StrictGreaterThan) or (
        isinstance(expr, sympy.StrictLessThan) and any(expr.rhs % length == 0 for length in lengths)
    )
    return ends and is_in(FUNCTIONAL, locate()[1])


def teaches(expr: sympy.Basic) -> bool:
    """Whether a requirement is plain enough to simplify sizes with: an equality, or a bound on one size."""
    if isinstance(expr, sympy.Eq):
        return any(side.is_Symbol for side in expr.args)
    return isinstance(expr, sympy.Rel) and len(expr.free_symbols) == 1


def kind_of(source: Any) -> str:
    """Whether what a source stands for is a size, a stride, an offset or another number."""
    prop = getattr(source, "prop", None)
    return {"SIZE": "size", "STRIDE": "stride", "STORAGE_OFFSET": "offset"}.get(getattr(prop, "name", ""), "number")
