"""Keys of calls (sizes, strides, numbers) as functions of arguments, and their words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

# What a program's code says of a key; else it is the number of the reason for which the program does not serve it.
ADMITTED, UNTOLD = -1, -2


def key_function(parts: Sequence[str]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A function of arguments `a` from the expressions of a key."""
    scope: dict[str, Any] = {}
    exec(f"def key(a):\n    return ({''.join(p + ', ' for p in parts)})", scope)
    return scope["key"]  # type: ignore[no-any-return]
