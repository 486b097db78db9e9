"""Exported programs with unbacked symbols and `_assert_scalar` nodes in the place of guards.

Owns the last step of an export: the free sizes of a capture become unbacked symbols from 0 on of a plain `ShapeEnv`,
each dim of each input its own, and what is assumed of them becomes `_assert_scalar` nodes before anything else in the
graph. Nothing else about sizes is kept: neither guards nor ranges, so whoever traces the graph again learns from the
assertions, and keeps them.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
from torch.utils import _pytree as pytree
from torch.utils._sympy.functions import Max
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.reference import PythonReferenceAnalysis
from torch.utils._sympy.value_ranges import ValueRanges

from anyshape._torch.fake_runs import concrete
from anyshape.assumptions.recording import Recording

_STALE = ("example_value", "grapharg", "tensor_meta")  # of a capture's own symbols, and nobody reads them here
_KEY = "anyshape_assertions"
_RENAMED = "anyshape_symbols"


@dataclasses.dataclass(frozen=True)
class Assertion:
    """Something that holds of every call which the program serves, and what is said where it does not."""

    fact: sympy.Basic
    text: str  # in the words of the user: x.shape[1] == y.shape[0]
    where: str  # file:line

    @property
    def message(self) -> str:
        return f"anyshape: {self.text} does not hold" + (f", and {self.where} needs it" if self.where else "")


def finish(program: Any, recording: Recording, assertions: Sequence[Assertion], *, loose_views: bool = False) -> Any:
    """A program in symbols of its own that asserts `assertions`; the one that was traced stays as it is.

    `loose_views`: what lies otherwise than when it was traced is copied rather than refused.
    """
    renaming = _Renaming(recording, dict(filter(None, (_pin(a.fact) for a in assertions))))
    facts = [(renaming.expr(a.fact), a) for a in assertions if _pin(a.fact) is None]
    facts = [(fact, a) for fact, a in facts if fact != sympy.true]  # static sizes settle it
    module = _copied(program.graph_module)
    placeholders = module.graph.find_nodes(op="placeholder")
    own = {id(n.meta["val"]) for n in placeholders if isinstance(n.meta.get("val"), torch.Tensor)}
    for graph in module.modules():
        for node in graph.graph.nodes if isinstance(graph, torch.fx.GraphModule) else ():
            for name in _STALE:
                node.meta.pop(name, None)
            if loose_views and node.target is torch.ops.aten.view.default:
                node.target = torch.ops.aten.reshape.default
            if "val" in node.meta:
                node.meta["val"] = renaming.value(node.meta["val"], own)
            if node.meta.get("unbacked_bindings"):
                bindings = node.meta["unbacked_bindings"]
                node.meta["unbacked_bindings"] = {renaming.symbol(s): path for s, path in bindings.items()}
    _insert(module.graph, placeholders, [(fact, a.message) for fact, a in facts])
    module.recompile()
    module.meta[_KEY] = [a.text for _, a in facts]
    made = program._update(module, copy.deepcopy(program.graph_signature))
    made._range_constraints = renaming.ranges()
    made._guards_code = []
    made.validate()
    made.graph_module.meta[_RENAMED] = renaming.names
    return made


def _copied(module: Any) -> Any:
    """A copy of a graph module; its nodes keep their names, by which a signature knows them (`input`, `lambda`)."""
    made = copy.deepcopy(module)
    for old, new in zip(module.modules(), made.modules(), strict=True):
        for a, b in zip(old.graph.nodes, new.graph.nodes, strict=True) if isinstance(old, torch.fx.GraphModule) else ():
            b.name = a.name
    return made


def asked_again(program: Any) -> tuple[sympy.Basic | None, bool]:
    """A question about sizes, over the capture's symbols, that torch asks when it decomposes a program; None if none.

    Also whether it can be decomposed at all. The program is used up: torch learns about its symbols on the way.
    """
    names = program.graph_module.meta[_RENAMED]
    try:
        with concrete.quietly():
            program.run_decompositions()
    except GuardOnDataDependentSymNode as error:
        question = getattr(error, "cond", None)
        if isinstance(question, sympy.Basic) and question.free_symbols <= names.keys():
            return question.xreplace(names), False
        return None, False
    except Exception:
        return None, False
    return None, True


def _pin(fact: sympy.Basic) -> tuple[sympy.Basic, sympy.Basic] | None:
    """A size and the number that it has to be: it is that number in the type of the input, as a static dim is.

    As a symbol with an assertion it would be lost: torch puts the number in its place and drops what it then knows
    (and 2.13 cannot load such a program).
    """
    if isinstance(fact, sympy.Eq):
        for size, number in (fact.args, fact.args[::-1]):
            if size.is_Symbol and number.is_Integer:
                return size, number
    return None


def asserted(program: Any) -> list[str]:
    """The messages of the assertions in a program's graph that an export put there."""
    calls = program.graph.find_nodes(op="call_function", target=torch.ops.aten._assert_scalar.default)
    return [n.args[1] for n in calls if str(n.args[1]).startswith("anyshape: ")]


class PlannedShapeEnv(ShapeEnv):
    """A ShapeEnv that has a size in mind for each unbacked symbol, and does not believe what that size contradicts.

    Inductor of torch 2.13 tries ways to index a reshape by claiming what they need (`2 == 2*u0`), and of unbacked
    symbols everything is believed: the code then is for the one size. From 2.15 on it checks, and this can go.
    """

    def __init__(self) -> None:
        self.planned: dict[sympy.Basic, sympy.Basic] = {}
        super().__init__()

    def guard_or_defer_runtime_assert(self, orig_expr: Any, msg: str, fx_node: Any = None) -> bool:
        with contextlib.suppress(ZeroDivisionError):
            if orig_expr.xreplace(self.planned) == sympy.false:
                return False
        return bool(super().guard_or_defer_runtime_assert(orig_expr, msg, fx_node))


class _Renaming:
    """Values over the symbols of a capture as values over unbacked ones of a new environment."""

    def __init__(self, recording: Recording, pinned: Mapping[sympy.Basic, sympy.Basic]) -> None:
        self.recording = recording
        self._pinned = dict(pinned)
        self.env = PlannedShapeEnv()
        self.mode = FakeTensorMode(shape_env=self.env, export=True, allow_non_fake_inputs=True)
        self._symbols: dict[sympy.Basic, sympy.Basic] = {}
        self.names: dict[sympy.Basic, sympy.Basic] = {}  # back to the capture's own, for sizes of inputs
        self._made: dict[int, tuple[Any, Any]] = {}

    def symbol(self, old: sympy.Basic) -> sympy.Basic:
        if old not in self._symbols:
            with self.env.ignore_fresh_unbacked_symbols():
                real = old.is_integer is not True
                made = self.env.create_unbacked_symfloat() if real else self.env.create_unbacked_symint()
            new = self._symbols[old] = made.node.expr
            free = old in self.recording.symbols
            known = getattr(self.recording.env, "var_to_range", {}).get(old)
            if free:
                self.names[new] = old
                self.env.planned[new] = self.recording.hints[old]
                self.env.var_to_range[new] = ValueRanges(sympy.Integer(0), int_oo)
                if hasattr(self.env, "size_like"):
                    self.env.size_like.add(new)
            elif known is not None:
                self.env.var_to_range[new] = known
        return self._symbols[old]

    def expr(self, old: sympy.Basic) -> sympy.Basic:
        """An expression over the new symbols; offsets and strides, which are those of the example, are numbers."""
        fixed = {s: self.recording.hints[s] for s in old.free_symbols if self._is_fixed(s)}
        old = old.xreplace(fixed | self._pinned)
        return old.xreplace({s: self.symbol(s) for s in sorted(old.free_symbols, key=str)})

    def _is_fixed(self, symbol: Any) -> bool:
        record = self.recording.symbols.get(symbol)
        return record is not None and record.kind != "size"

    def number(self, old: Any, *, own: bool = False) -> Any:
        """`own`: the symbol that a size was created with, whatever it is known to equal since."""
        if not isinstance(old, (torch.SymInt, torch.SymBool, torch.SymFloat)):
            return old
        expr = self.expr(old.node._expr if own else old.node.expr)
        kind = type(old)
        if kind is torch.SymInt:
            return self.env.create_symintnode(expr, hint=None)
        if kind is torch.SymFloat:
            return float(expr) if expr.is_number else torch.SymFloat(SymNode(expr, self.env, float, None))
        return bool(expr) if expr in (sympy.true, sympy.false) else torch.SymBool(SymNode(expr, self.env, bool, None))

    def _stride(self, old: Any, *, own: bool) -> Any:
        """As torch has them: a size of 0 counts as 1, so that a stride is never below 1."""
        made = self.number(old, own=own)
        if not isinstance(made, torch.SymInt):
            return made
        expr = made.node.expr.xreplace({s: Max(1, s) for s in made.node.expr.free_symbols})
        return self.env.create_symintnode(expr, hint=None)

    def value(self, tree: Any, own: set[int]) -> Any:
        return pytree.tree_map(lambda leaf: self._leaf(leaf, own), tree)

    def _leaf(self, old: Any, own: set[int]) -> Any:
        if not isinstance(old, torch.Tensor):
            return self.number(old)
        if id(old) not in self._made:
            self._made[id(old)] = old, self._tensor(old, own=id(old) in own)
        return self._made[id(old)][1]

    def _tensor(self, old: torch.Tensor, *, own: bool) -> torch.Tensor:
        if old.layout is not torch.strided:
            with self.mode:
                return torch.empty(tuple(old.shape), dtype=old.dtype, device=old.device, layout=old.layout)
        sizes = [self.number(n, own=own) for n in old.shape]
        strides = [self._stride(n, own=own) for n in old.stride()]
        with self.mode, torch.no_grad():
            made = torch.empty_strided(sizes, strides, dtype=old.dtype, device=old.device)
        if isinstance(old, torch.nn.Parameter):
            return torch.nn.Parameter(made, requires_grad=old.requires_grad)
        return made.requires_grad_(old.requires_grad)

    def ranges(self) -> dict[sympy.Basic, Any]:
        return {new: self.env.var_to_range[new] for new in self._symbols.values()}


def _insert(graph: Any, placeholders: Sequence[Any], facts: Sequence[tuple[sympy.Basic, str]]) -> None:
    """Assert each fact before the first call."""
    places = dict(_places(placeholders))
    first = next(n for n in graph.nodes if n.op != "placeholder")
    tracer = torch.fx.proxy.GraphAppendingTracer(graph)
    with graph.inserting_before(first):
        sizes: dict[sympy.Basic, Any] = {}
        for symbol in sorted(set().union(*(f.free_symbols for f, _ in facts)), key=str):
            node, dim = places[symbol]
            size = graph.call_function(torch.ops.aten.sym_size.int, (node, dim))
            size.meta["val"] = node.meta["val"].shape[dim]
            sizes[symbol] = torch.fx.Proxy(size, tracer)
        known = set(graph.nodes)
        for fact, message in facts:
            holds = sympy_interp(PythonReferenceAnalysis, sizes, fact)
            graph.call_function(torch.ops.aten._assert_scalar.default, (holds.node, message))
    for node in graph.nodes:
        if node not in known and node.target is not torch.ops.aten._assert_scalar.default:
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
            node.meta["val"] = node.target(*args, **kwargs)


def _places(placeholders: Sequence[Any]) -> Iterator[tuple[sympy.Basic, tuple[Any, int]]]:
    """Where each symbol of the inputs is a size."""
    for node in placeholders:
        value = node.meta.get("val")
        for i, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if isinstance(size, torch.SymInt) and size.node._expr.is_Symbol:
                yield size.node._expr, (node, i)
