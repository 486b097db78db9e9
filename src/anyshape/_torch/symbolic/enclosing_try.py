"""Whether the traced line is inside a `try` whose errors the function handles.

Owns whether the line that is being traced lies in a `try` whose errors are handled. What a call there insists on may
not hold, and the function goes on: where only the data tells, no graph can hold both ways.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import linecache
import os

import torch
from torch._guards import TracingContext

import anyshape

_OWN = os.path.dirname(anyshape.__file__) + os.sep
_TORCH = os.path.dirname(torch.__file__) + os.sep


def errors_are_caught() -> bool:
    """Whether an error of the call that is being traced would be handled by the user's code."""
    with contextlib.suppress(Exception):
        return any(
            line.lineno in _tried("".join(linecache.getlines(line.filename)))
            for line in TracingContext.extract_stack()
            if not line.filename.startswith((_OWN, _TORCH))
        )
    return False


@functools.lru_cache(maxsize=64)
def _tried(source: str) -> frozenset[int]:
    """The lines of a file that lie in a `try` with handlers."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Try) and node.handlers:
            lines.update(range(node.body[0].lineno, (node.body[-1].end_lineno or node.body[-1].lineno) + 1))
    return frozenset(lines)
