"""Roles of sizes in kernels: reduced, contiguous, rows, scalar, stride.

Owns the roles: an extent that something is reduced over, one that lies contiguous in memory, one of rows, a number, a
stride. Read from the captured graph; what is missed costs speed and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch

from anyshape._torch.compile.exact_sizes import Master
from anyshape._torch.fake_runs import concrete
from anyshape.assumptions.answers import name_of
from anyshape.variants import buckets

# Calls that go over the dim that they name, or the last one.
_ALONG_TEXT = (
    "all amax amin any argmax argmin argsort cummax cummin cumprod cumsum kthvalue log_softmax logcumsumexp logsumexp "
    "max mean median min nanmean nanmedian nansum norm normalize prod softmax softmin sort std std_mean sum topk var "
    "var_mean vector_norm"
)
_ALONG = frozenset(_ALONG_TEXT.split())
_NORMS = frozenset(("layer_norm", "rms_norm"))  # over the last dims, as many as their second argument has
_ATTENTION = frozenset(("scaled_dot_product_attention",))
# Calls that take a part of a tensor: what is left out is not gone over.
_PARTS = frozenset(("getitem", "select", "index_select", "gather", "embedding", "narrow", "index", "slice"))


def roles(master: Master) -> dict[sympy.Symbol, str]:
    """Of each free size, number or stride of the inputs that stands for itself."""
    found: dict[sympy.Symbol, str] = {}
    for value in master.placeholders:
        if isinstance(value, torch.SymInt):
            _note(found, (value,), buckets.NUMBER)
        elif isinstance(value, torch.Tensor):
            _note(found, value.stride(), buckets.STRIDE)
    for value in master.placeholders:
        if isinstance(value, torch.Tensor):
            _note(found, value.shape, buckets.ROWS)
    reduced, contiguous = _reduced(master.graph), _contiguous(master)
    for symbol, role in found.items():
        if role == buckets.ROWS and symbol in reduced | contiguous:
            across = buckets.COLUMNS if reduced else buckets.CONTIGUOUS
            found[symbol] = buckets.REDUCED if symbol in reduced else across
    return found


def _note(found: dict[sympy.Symbol, str], numbers: Sequence[Any], role: str) -> None:
    for number in numbers:
        if isinstance(number, torch.SymInt) and number.node.expr.is_Symbol:
            found[number.node.expr] = role


def _contiguous(master: Master) -> set[sympy.Symbol]:
    """Of the inputs of the most dims: others have a number for each row, or weights."""
    tensors = [v for v in master.placeholders if isinstance(v, torch.Tensor)]
    rank = max((t.dim() for t in tensors), default=0)
    found: set[sympy.Symbol] = set()
    for tensor in tensors:
        if tensor.dim() == rank:
            exprs = zip(tensor.shape, tensor.stride(), strict=True)
            found |= _symbols(size for size, stride in exprs if concrete.number_expr(stride) == 1)
    return found


def _reduced(graph: Any) -> set[sympy.Symbol]:
    found: set[sympy.Symbol] = set()
    for node in graph.graph.nodes:
        if node.op not in ("call_function", "call_method"):
            continue
        name = name_of(node.target) if node.op == "call_function" else str(node.target)
        inputs = [t for n in node.all_input_nodes for t in _tensors(n)]
        if not inputs or name in _PARTS:
            continue
        made = _tensors(node)
        if made:
            found |= _symbols(s for t in inputs for s in t.shape) - _symbols(s for t in made for s in t.shape)
        found |= _symbols(_gone_over(name, node, inputs))
    return found


def _gone_over(name: str, node: Any, inputs: Sequence[torch.Tensor]) -> Iterator[Any]:
    first = inputs[0]
    if name in _ATTENTION and len(inputs) > 1 and inputs[1].dim() > 1:
        yield inputs[1].shape[-2]
    elif name in _NORMS:
        shape = node.kwargs.get("normalized_shape", node.args[1] if len(node.args) > 1 else (0,))
        yield from first.shape[-len(shape) :] if isinstance(shape, (tuple, list)) else first.shape[-1:]
    elif name in _ALONG and first.dim() > 0:
        given = node.kwargs.get("dim", node.kwargs.get("axis"))
        if given is None:
            at = 2 if name in ("topk", "kthvalue", "norm") else 1
            given = node.args[at] if len(node.args) > at else -1
        dims = given if isinstance(given, (tuple, list)) else [given]
        for dim in dims:
            if type(dim) is int and -first.dim() <= dim < first.dim():
                yield first.shape[dim]


def _tensors(node: Any) -> list[torch.Tensor]:
    value = node.meta.get("example_value")
    strided = (t for t in concrete.leaves(value) if isinstance(t, torch.Tensor))
    return [t for t in strided if t.layout is torch.strided]


def _symbols(numbers: Any) -> set[sympy.Symbol]:
    found: set[sympy.Symbol] = set()
    for number in numbers:
        if isinstance(number, torch.SymInt):
            found |= number.node.expr.free_symbols
    return found


def plan(master: Master, names: Mapping[Any, str]) -> buckets.Plan | None:
    """The buckets of a program; None where nothing of it is free."""
    places = master.places()
    axes = [buckets.Axis(names[s], places[s], role) for s, role in roles(master).items() if s in places]
    return buckets.Plan(axes) if any(a.role not in (buckets.NUMBER, buckets.STRIDE) for a in axes) else None
