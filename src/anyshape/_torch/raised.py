"""Errors of compiled graphs.

Owns two repairs. Inductor's CPU code raises RuntimeError for an index out of bounds, whatever eager raises for it. And
an `assert` of the function on what it computes itself is a check in the graph, which raises RuntimeError (torch 2.11 to
2.15) where eager raises AssertionError.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from anyshape.recording import Recording

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
_OUT_OF_BOUNDS = "index out of bounds"
_BROKEN = "Runtime assertion failed for expression "  # torch/fx/passes/runtime_assert.py


@dataclasses.dataclass(frozen=True)
class Raises:
    """Wraps a compiled graph so that it raises what eager raises. It can be pickled."""

    indexes: bool  # an index out of bounds is an IndexError
    asserts: tuple[str, ...]  # how messages begin that are those of an `assert`
    fills: bool = False  # but for `index_fill` of nothing

    def __call__(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            try:
                return compiled(*args)
            except RuntimeError as error:
                if type(error) is not RuntimeError:
                    raise
                if self.indexes and _OUT_OF_BOUNDS in str(error) and not (self.fills and _has_nothing(args)):
                    raise IndexError(str(error)) from error
                if self.asserts and str(error).startswith(self.asserts):
                    raise AssertionError(str(error)) from error
                raise

        return run


def by(graph: Any, recording: Recording) -> Raises | None:
    """What a graph raises otherwise than eager; None if nothing."""
    calls = [n for n in graph.graph.nodes if n.op in ("call_function", "call_method")]
    # Inductor's code says nothing but the condition.
    asserts = [text for expr in recording.asserted for text in (f"{_BROKEN}{expr} ", f"{expr}")]
    asserts += [n.args[1] for n in calls if n.target is torch._assert_async and _is_assert(n)]
    indexes = any(n.target in _INDEXING for n in calls)
    fills = any(n.target in ("index_fill", "index_fill_") for n in calls)
    return Raises(indexes, tuple(asserts), fills) if indexes or asserts else None


def _has_nothing(args: Sequence[Any]) -> bool:
    return any(isinstance(a, torch.Tensor) and a.numel() == 0 for a in args)


def _is_assert(node: Any) -> bool:
    """Whether Dynamo made a check of a statement, which is the last line of where it was made."""
    text = str(node.args[1]) if len(node.args) > 1 else ""
    lines = (node.stack_trace or "").strip().splitlines()
    return bool(text) and bool(lines) and any(line.strip().startswith("assert") for line in lines[-2:])
