"""Declared dims and invariants as facts about the symbols of one capture.

Owns how the names of a declaration meet the symbols of a capture: which dim has which name, which facts follow from the
names that have been seen, and what the invariants decide. Knows sympy and the solver, not torch: the division and the
remainder of the environment are handed in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sympy

from anyshape.declaration import Clause, Declaration, Dim, algebra, evaluate, solver
from anyshape.declaration.expression import names as names_in
from anyshape.declaration.policy import TensorPolicy

_SOLVER_MS = 100  # what a question of the framework may cost


@dataclasses.dataclass(frozen=True)
class Fact:
    """Something that is known of sizes without having been asked."""

    expr: sympy.Basic
    at_the_door: bool  # checked before the call; else the program has to see to it


class Declared:
    """The names of one capture and what is known of them."""

    def __init__(
        self,
        declaration: Declaration | None = None,
        tensors: Mapping[int, TensorPolicy] | None = None,
        *,
        hints: Mapping[str, int] | None = None,
        plan: Mapping[str, int] | None = None,
    ) -> None:
        self.declaration = declaration or Declaration()
        self.invariants = self.declaration.invariants
        self._tensors = dict(tensors or {})  # by identity
        self.hints = dict(hints or {})  # what a name is taken to be while the graph is captured
        self.plan = dict(plan or {})  # what code is planned for
        self.names: dict[sympy.Basic, str] = {}
        self._symbols: dict[str, sympy.Expr] = {}
        self._pending: list[tuple[tuple[str, ...], Callable[[], Iterator[sympy.Basic]], bool]] = []
        self._implied: dict[sympy.Basic, bool | None] = {}
        self._divisions: dict[str, Any] = {}
        self._wait(self.invariants, at_the_door=True)

    # -- tensors -----------------------------------------------------------------------------------------------

    def policy(self, tensor: Any, rank: int) -> TensorPolicy | None:
        """What is declared of this very tensor, if anything is."""
        known = self._tensors.get(id(tensor))
        if known is None or len(known.dims) != rank:
            return None
        return known

    @property
    def layout(self) -> str | None:
        """The layout of tensors that are not named: under oblivious semantics nothing is asked about strides."""
        if self.declaration.layout is None and self.declaration.semantics == "oblivious":
            return "any"
        return self.declaration.layout

    def hint(self, dim: Dim) -> int | None:
        """The value of a dim for the capture, where its names have one."""
        if dim.expr is None or any(n not in self.hints for n in names_in(dim.expr)):
            return None
        return int(evaluate(dim.expr, self.hints))

    # -- facts -------------------------------------------------------------------------------------------------

    def divides_with(self, *, floor_div: Callable[..., Any], mod: Callable[..., Any]) -> None:
        self._divisions = {"floor_div": floor_div, "mod": mod}

    def bind(self, policy: TensorPolicy, sizes: Sequence[sympy.Expr]) -> list[Fact]:
        """A tensor has come with these sizes: what is known from here on."""
        self._wait(policy.clauses, at_the_door=False)
        self.plan.update(policy.hints)
        for dim, size in zip(policy.dims, sizes, strict=True):
            if dim.name is not None and dim.name not in self._symbols:
                self._symbols[dim.name] = size
            elif dim.expr is not None and dim.value is None:
                self._wait_equal(dim, size)
            if dim.name is not None and size.is_Symbol:
                self.names[size] = dim.name
        ready = [p for p in self._pending if all(n in self._symbols for n in p[0])]
        self._pending = [p for p in self._pending if p not in ready]
        return [Fact(f, at) for _, make, at in ready for f in make() if f not in (sympy.true, sympy.false)]

    def _wait(self, clauses: Sequence[Clause], *, at_the_door: bool) -> None:
        for clause in clauses:
            make = lambda c=clause: iter(algebra.facts(c, self._symbols, **self._divisions))
            self._pending.append((clause.names, make, at_the_door))

    def _wait_equal(self, dim: Dim, size: sympy.Expr) -> None:
        assert dim.expr is not None
        expr = dim.expr

        def make() -> Iterator[sympy.Basic]:
            yield sympy.Eq(size, algebra.to_sympy(expr, self._symbols, **self._divisions))

        # A name of a mark is shared by whoever carries it; one of a declaration is checked at the entry.
        known = all(n in self.declaration.names for n in names_in(expr))
        self._pending.append((names_in(expr), make, known))

    def implied(self, expr: sympy.Basic) -> bool | None:
        """What the invariants decide about a question, by the solver; None where they do not or cannot say."""
        clauses = self.invariants
        if not clauses or not expr.free_symbols or not self.names.keys() >= expr.free_symbols:
            return None
        if expr not in self._implied:
            # Products of sizes are what a solver may ponder for seconds.
            products = any(len(p.free_symbols) > 1 for p in expr.atoms(sympy.Mul))
            clause = None if products else algebra.from_sympy(expr, self.names)
            self._implied[expr] = None if clause is None else solver.implied(clauses, clause, timeout_ms=_SOLVER_MS)
        return self._implied[expr]

    def planned(self) -> dict[sympy.Basic, int]:
        """What code is planned for, by symbol."""
        return {symbol: self.plan[name] for symbol, name in self.names.items() if name in self.plan}
