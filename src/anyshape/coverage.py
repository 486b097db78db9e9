"""`anyshape.check`: whether the programs of a function cover all the sizes that are declared.

Owns `anyshape.check`: the behaviors of programs as clauses, and the question to the solver whether some allowed sizes
have none of them. A proof where it says so; a concrete size where not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import sympy

from anyshape.declaration import Clause, algebra, solver
from anyshape.engine.engine import Engine, engine_of
from anyshape.engine.live_program import LiveProgram


@dataclasses.dataclass(frozen=True)
class Coverage:
    """The result of `check`. It is true if every allowed size is covered."""

    covered: bool
    uncovered: Mapping[str, int] | None = None  # sizes, by name or by dim, that no program serves
    unknown: tuple[str, ...] = ()  # behaviors that say more than clauses can: they cover nothing here

    def __bool__(self) -> bool:
        return self.covered

    def __str__(self) -> str:
        if self.covered:
            return "every allowed size is covered"
        text = "no program serves " + ", ".join(f"{n} = {v}" for n, v in (self.uncovered or {}).items())
        if not self.uncovered:
            text = "nothing has been compiled" if not self.unknown else "coverage could not be decided"
        return text + (f"; not counted: {', '.join(self.unknown)}" if self.unknown else "")


def check(f: object) -> Coverage:
    """Whether the programs of `f` cover every size that its declaration allows."""
    return check_engine(engine_of(f, asked_by="check", fix="f(x); anyshape.check(f)"))


def check_engine(engine: Engine) -> Coverage:
    """The same of an engine."""
    first = [p for p in engine.programs if p.origin is None or p.origin is engine.entrance] or engine.programs
    if not first:
        return Coverage(False)
    covers: list[Clause] = []
    unknown: list[str] = []
    for program in first:
        clause = _behaviour(program)
        if clause is None:
            unknown.append(program.view().behavior)
        elif not clause.comparisons:
            return Coverage(True)  # a program for every size
        else:
            covers.append(clause)
    declared = engine.entry_check.declaration.invariants if engine.entry_check is not None else ()
    missing = solver.uncovered(declared, covers) if covers else None
    if not covers:
        return Coverage(False, None, tuple(unknown))
    return Coverage(missing is None, missing, tuple(unknown))


def _behaviour(program: LiveProgram) -> Clause | None:
    """The predicates of a program over names, or over dims where they have none (`x.shape[0]`)."""
    recording = program.recording
    if not recording.predicates:
        return Clause("every size", (), "predicate")
    names = {s: r.text for s, r in recording.symbols.items() if r.kind == "size"} | recording.declared.names
    return algebra.from_sympy(sympy.And(*(a.fact for a in recording.predicates.values())), names)
