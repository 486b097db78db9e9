"""Mutation through conj and neg views, functionalized in the graph.

Owns one repair (torch 2.11 to 2.15): such a write is made to a copy and copied back, in C++ that asks for plain sizes,
which makes a program for each. Here it is made so in the graph itself.
"""

from __future__ import annotations

from typing import Any

import torch

from anyshape._torch.graphs import memory
from anyshape.assumptions.answers import name_of


def write_(tensor: torch.Tensor, method: str, *args: Any, **kwargs: Any) -> torch.Tensor:
    """A method that computes what it writes to a tensor."""
    copy = tensor.resolve_conj().resolve_neg()
    return tensor.copy_(getattr(copy, method)(*args, **kwargs))


def rewrite(node: Any, args: Any) -> Any:
    """The arguments that a node is run with, which is a call of `write_` from here on if it is such a write."""
    if node.op not in ("call_function", "call_method") or not any(map(_is_lazy, args[:1])):
        return args
    if not memory.computes(node.target):
        return args
    method = f"__{node.target.__name__}__" if node.target in memory.OPERATORS else name_of(node.target)
    node.op, node.target = "call_function", write_
    node.args = (node.args[0], method, *node.args[1:])
    return (args[0], method, *args[1:])


def _is_lazy(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_conj() or value.is_neg())
