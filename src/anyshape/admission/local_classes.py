"""Local classes: the sizes of a single node for which it has been verified, shared by equal nodes.

Owns local classes: facts about the sizes of one node under which it was verified, and what came out. What was learnt of
a node holds whatever the other sizes of the program are, and holds of every node that is the same call on other memory
and other sizes. Which nodes a program has, and what follows for its calls, is the admission's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import sympy

from anyshape._torch.fake_runs import verify
from anyshape._torch.symbolic import python_code
from anyshape.assumptions.answers import NodeRecord

MOST_EXACT = 4_096  # sizes that are remembered of a node of which nothing can be told symbolically


@dataclasses.dataclass(frozen=True)
class LocalClass:
    """Sizes of a node that give the same answers, and whether it holds there."""

    facts: tuple[sympy.Basic, ...]
    difference: verify.Difference | None
    strict: bool  # it chose its way otherwise than at capture


class Kind:
    """Nodes that are the same call but for their memory and the names of their sizes."""

    def __init__(self, node: NodeRecord, symbols: Sequence[sympy.Basic], signed: frozenset[sympy.Basic]) -> None:
        self.node = node
        self.symbols = tuple(symbols)
        self.classes: list[LocalClass] = []
        self.runs = 0
        self.untold = ""  # why a verdict had to be kept for the very sizes
        self._signed = signed
        self._names: Any = {symbol: f"v[{i}]" for i, symbol in enumerate(self.symbols)}
        self._holds: list[Callable[[Sequence[Any]], tuple[Any, ...]]] = []
        self._exact: dict[tuple[Any, ...], LocalClass] = {}

    def known(self, values: tuple[Any, ...]) -> LocalClass | None:
        """The class of these sizes, if it has been learnt."""
        for local, holds in zip(self.classes, self._holds, strict=True):
            if all(holds(values)):
                return local
        return self._exact.get(values)

    def learn(self, values: tuple[Any, ...]) -> LocalClass:
        """Verify the node at these sizes, and say for which others it then is."""
        sizes = {symbol: sympy.sympify(value) for symbol, value in zip(self.symbols, values, strict=True)}
        strict = self.node.chooses_otherwise(sizes)
        self.runs += 1
        verdict = verify.follow(self.node, sizes, signed=self._signed, strict=strict)
        facts = verdict.facts
        if facts is not None:
            chosen = (self.node.decisions[expr] for expr in self.node.choices)
            facts += tuple(a.fact if a.holds(sizes) else sympy.Not(a.fact) for a in chosen)
        if facts is None or not all(fact.free_symbols <= self._names.keys() for fact in facts):
            self.untold = verdict.why or "it asks about sizes born in the graph"
            local = LocalClass((), verdict.difference, strict)
            if len(self._exact) >= MOST_EXACT:
                self._exact.clear()
            self._exact[values] = local
            return local
        local = LocalClass(tuple(dict.fromkeys(facts)), verdict.difference, strict)
        self.classes.append(local)
        self._holds.append(python_code.function(local.facts, self._names))
        return local


class Kinds:
    """The kinds of the nodes of one program."""

    def __init__(self, kind_of: Mapping[sympy.Basic, str]) -> None:
        self._kind_of = kind_of  # size | stride | offset | number, for each symbol that a call decides
        self._signed = frozenset(s for s, kind in kind_of.items() if kind == "number")
        self._found: dict[Hashable, Kind] = {}

    def of(self, node: NodeRecord) -> tuple[Kind, tuple[sympy.Basic, ...]]:
        """The kind of a node, and the node's own symbols in the place of the kind's."""
        every = verify.symbols(node)
        own = tuple(s for s in every if s in self._kind_of)
        names = {s: sympy.Symbol(f"{self._kind_of.get(s, 'born')}{i}", integer=True) for i, s in enumerate(every)}
        alike = id(node) if node.choices else verify.identity(node, names)
        kind = self._found.get(alike)
        if kind is None:
            kind = self._found[alike] = Kind(node, own, self._signed)
        return kind, own

    def __iter__(self) -> Any:
        return iter(self._found.values())
