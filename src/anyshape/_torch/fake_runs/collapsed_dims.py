"""Collapsing dims in views: `_collapse_view_helper` compares all strides, past dims of size 1 too.

Owns one repair. Whether a view joins dims is asked of neighbours alone, and of a size of 1 nothing is asked
(`_collapse_view_helper`, torch/_prims, 2.11 to 2.15). With sizes 2, 1, 2 and strides 5, 5, 2 the outer dims are never
compared, and a view is promised where eager raises, or copies. While a call is captured or verified they are.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import torch
import torch._prims as prims

from anyshape._torch.repairs import registry
from anyshape._torch.repairs.registry import repair

_stock = getattr(prims, "_collapse_view_helper", None)
_looks: contextvars.ContextVar[bool] = contextvars.ContextVar("a call is captured or verified", default=False)


@repair(
    "torch._prims:_collapse_view_helper",
    scope="views",
    phase="fake run",
    broken="2.11-2.15",
    symptom="A view is promised where eager raises, or copies: of sizes 2, 1, 2 with strides 5, 5, 2.",
    cause="_prims/__init__.py:_collapse_view_helper compares neighbors alone, and asks nothing of a size of 1.",
    cure="Dims are compared with those on the other side of sizes of 1.",
    goes="when _collapse_view_helper skips sizes of 1 as eager does",
    absent="skip",
    shared=True,
)
def _collapse(a: Any, start: int, end: int, must_be_valid: str | None) -> Any:
    assert _stock is not None
    if _looks.get() and a.dim() and not _joins(_actual(a.shape), _actual(a.stride()), start, end):
        if not must_be_valid:
            return None, None
        torch._check(False, lambda: must_be_valid)
    return _stock(a, start, end, must_be_valid)


def _actual(numbers: Any) -> list[Any]:
    """In a capture those of the call that is captured, since nothing is to be recorded; where unknown, None."""
    return [_value(n) if hasattr(getattr(n, "node", None), "shape_env") else n for n in numbers]


def _value(number: Any) -> Any:
    recording = getattr(number.node.shape_env, "recording", None)
    if recording is None:
        return number
    expr = number.node.expr.xreplace(recording.hints)
    return int(expr) if expr.is_number else None


def _joins(sizes: list[Any], strides: list[Any], start: int, end: int) -> bool:
    """Whether dims with nothing but sizes of 1 between them follow one another in memory."""
    if None in sizes or None in strides or 0 in sizes:
        return True
    inner = end
    for dim in range(end - 1, start - 1, -1):
        if sizes[inner] == 1:
            inner = dim
        elif sizes[dim] != 1:
            if dim + 1 < inner and strides[dim] != strides[inner] * sizes[inner]:
                return False
            inner = dim
    return True


@contextlib.contextmanager
def repaired() -> Iterator[None]:
    """For this thread; others, which may be stock's, go on as they were."""
    token = _looks.set(True)
    try:
        with registry.entered("views"):
            yield
    finally:
        _looks.reset(token)
