"""Errors of generated code.

Owns one repair: Inductor's CPU code raises RuntimeError for an index out of bounds, whatever eager raises for the call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

# Calls that raise IndexError in eager; `gather` and `scatter` raise RuntimeError there too.
_INDEXING = {
    operator.getitem,
    operator.setitem,
    torch.index_select,
    torch.embedding,
    torch.take,
    F.embedding,
    F.embedding_bag,
    F.nll_loss,
    F.cross_entropy,
    "index_select",
    "index_put",
    "index_put_",
    "index_add",
    "index_add_",
    "index_copy",
    "index_copy_",
    "index_fill",
    "index_fill_",
    "take",
}
_TEXT = "index out of bounds"


def out_of_bounds(graph: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]] | None:
    """A wrapper that raises eager's IndexError, or None if no call of the graph raises one."""
    if not any(n.op in ("call_function", "call_method") and n.target in _INDEXING for n in graph.graph.nodes):
        return None

    return as_index_error


def as_index_error(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled graph that raises IndexError for an index out of bounds."""

    def run(*args: Any) -> Any:
        try:
            return compiled(*args)
        except RuntimeError as error:
            if type(error) is RuntimeError and _TEXT in str(error):
                raise IndexError(str(error)) from error
            raise

    return run
