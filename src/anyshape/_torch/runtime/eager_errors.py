"""Errors of compiled graphs as eager's: index bounds, asserts, empty reductions.

Owns what tells that a graph insists on something that does not hold of the data, and that nothing has happened yet: the
call is then eager's, and so is its error.

Where that cannot be (after a graph break, in what was saved, and where inputs are written to), owns five repairs (torch
2.11 to 2.15). Inductor's CPU code raises RuntimeError for an index out of bounds, whatever eager raises for it. An
`assert` of the function on what it computes itself is a check in the graph, which raises RuntimeError where eager
raises AssertionError. And so is that there is something to choose from, where how much there is comes out of the data:
`max` and the like raise IndexError in eager. So does an index that is out of the bounds of such a size. A
`torch._assert_async` without a message is left out by AOTAutograd.
"""

from __future__ import annotations

import dataclasses
import operator
import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch
import torch.nn.functional as F
from torch._guards import TracingContext

from anyshape._torch.graphs import subscripts
from anyshape._torch.repairs.functionalization.first_calls import OWN
from anyshape.assumptions.answers import name_of

if TYPE_CHECKING:
    from anyshape.assumptions.recording import Recording

# Calls that raise IndexError in eager; `gather` and `scatter` raise RuntimeError there too.
_INDEXING = {
    operator.getitem,
    operator.setitem,
    subscripts.getitem,
    subscripts.setitem,
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
# Calls that raise IndexError in eager if there is nothing to choose from.
_CHOOSING = {"max", "min", "amax", "amin", "aminmax", "argmax", "argmin", "median", "nanmedian", "kthvalue", "mode"}
_CHOOSING |= {"select", "getitem"}
_NOTHING = re.compile(r"(Runtime assertion failed for expression )?(u\d+ >= 1\b|Ne\(u\d+, 0\))")
_BORN = re.compile(r"\bz?uf?\d+\b")
_CONDITION = re.compile(r"[\w\s<>=&|()+*/,-]+")
_OF_RULES = os.path.join("anyshape", "ops", "")
_SINGLE = "Expected Tensor with single nonzero value, but got zero"  # TensorCompare.cpp
_OUT_OF_BOUNDS = "index out of bounds"
_BROKEN = "Runtime assertion failed for expression "  # torch/fx/passes/runtime_assert.py
_CHECK = "assert_tensor_metadata"  # torch/_inductor/runtime/runtime_utils.py, torch 2.15: a dtype is a RuntimeError


@dataclasses.dataclass(frozen=True)
class Raises:
    """Wraps a compiled graph so that it raises what eager raises. It can be pickled."""

    indexes: bool  # an index out of bounds is an IndexError
    asserts: tuple[str, ...]  # how messages begin that are those of an `assert`
    fills: bool = False  # but for `index_fill` of nothing
    chooses: bool = False  # nothing to choose from is an IndexError
    picks: frozenset[str] = frozenset()  # numbers born from data on which only indexing insists

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
                if self.picks and self._is_about_bounds(str(error)):
                    raise IndexError(f"index out of bounds: {error}") from error
                if self.chooses and _NOTHING.match(str(error)):
                    raise IndexError(f"there is nothing to choose from: {error}") from error
                raise

        return run

    def _is_about_bounds(self, message: str) -> bool:
        condition = message.removeprefix(_BROKEN).partition(" on node ")[0]
        told = _is_condition(message) and not condition.endswith(" >= 0")
        return told and set(_BORN.findall(condition)) <= self.picks


@dataclasses.dataclass(frozen=True)
class Insists:
    """What a graph says when something that it insists on does not hold of numbers that come out of the data."""

    messages: frozenset[str]

    @classmethod
    def of(cls, graph: Any) -> Insists | None:
        checks = graph.graph.find_nodes(op="call_function", target=torch.ops.aten._assert_scalar.default)
        return cls(frozenset(str(node.args[1]) for node in checks)) if checks else None

    def said(self, error: RuntimeError) -> bool:
        text = str(error)
        return type(error) is RuntimeError and (text in self.messages or _is_condition(text))


def _is_condition(message: str) -> bool:
    """Whether a message is no more than a condition on numbers born from data, in any backend's way."""
    condition = message.removeprefix(_BROKEN).partition(" on node ")[0]
    return _CONDITION.fullmatch(condition) is not None and _BORN.search(condition) is not None


def is_check_of_code(error: BaseException) -> bool:
    """Whether generated code found a tensor other than it was traced to be; what a function asserts has a cause."""
    if isinstance(error, AssertionError):
        return error.__cause__ is None
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and last.tb_frame.f_code.co_name == _CHECK


def leaves_no_trace(graph: Any) -> bool:
    """Whether an aten graph that raises can be forgotten: it writes to no input and draws no random numbers."""
    told = getattr(TracingContext.try_get(), "fw_metadata", None)
    if told is None or any(i.mutates_data or i.mutates_metadata or i.mutates_storage_metadata for i in told.input_info):
        return False
    calls = {node.target for node in graph.graph.nodes if isinstance(node.target, torch._ops.OpOverload)}
    return not any(torch.Tag.nondeterministic_seeded in call.tags or call.namespace not in OWN for call in calls)


def keep_assertions(graph: Any) -> None:
    """Those that have no message are given eager's, with which AOTAutograd keeps them."""
    for node in graph.graph.find_nodes(op="call_function", target=torch._assert_async):
        if len(node.args) == 1 and not node.kwargs:
            node.args = (*node.args, _SINGLE)
            graph.recompile()


def by(graph: Any, recording: Recording) -> Raises | None:
    """What a graph raises otherwise than eager; None if nothing."""
    calls = [n for n in graph.graph.nodes if n.op in ("call_function", "call_method")]
    # Inductor's code says nothing but the condition.
    asserted = [form for expr in recording.asserted for form in _forms(expr)]
    asserts = [text for expr in asserted for text in (f"{_BROKEN}{expr} ", f"{expr}")]
    asserts += [n.args[1] for n in calls if n.target is torch._assert_async and _is_assert(n)]
    indexes = any(n.target in _INDEXING for n in calls)
    fills = any(n.target in ("index_fill", "index_fill_") for n in calls)
    names = {name_of(n.target) for n in calls}
    own = any(n.target is torch.ops.aten._assert_scalar.default and _is_own_check(n) for n in calls)
    chooses = bool(names & _CHOOSING) and not own
    picks = frozenset(str(s) for s, asking in recording.insisting.items() if all(map(subscripts.is_subscript, asking)))
    found = Raises(indexes, tuple(asserts), fills, chooses, picks)
    return found if indexes or asserts or chooses or picks else None


def _forms(expr: sympy.Basic) -> list[sympy.Basic]:
    """A condition as it is asserted: as it is, and as a bound of a range."""
    if isinstance(expr, sympy.StrictLessThan):
        return [expr, sympy.Le(expr.lhs, expr.rhs - 1)]
    if isinstance(expr, sympy.StrictGreaterThan):
        return [expr, sympy.Ge(expr.lhs, expr.rhs + 1)]
    return [expr]


def _has_nothing(args: Sequence[Any]) -> bool:
    return any(isinstance(a, torch.Tensor) and a.numel() == 0 for a in args)


def _is_assert(node: Any) -> bool:
    """Whether Dynamo made a check of a statement."""
    text = str(node.args[1]) if len(node.args) > 1 else ""
    return bool(text) and any(line.startswith("assert") for line in _lines(node))


def _is_own_check(node: Any) -> bool:
    """Whether the function has the check itself, and not a rule in its place."""
    text = " ".join(_lines(node))
    return "torch._check" in text and _OF_RULES not in text


def _lines(node: Any) -> list[str]:
    """Of the function: the last ones of where the node was made."""
    return [line.strip() for line in (node.stack_trace or "").strip().splitlines()[-2:]]
