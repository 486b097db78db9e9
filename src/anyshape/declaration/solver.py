"""Questions to z3 about all the sizes that a declaration allows.

Owns what is asked of z3: whether invariants contradict one another, whether they decide a predicate, which sizes
satisfy them, which are left uncovered. z3 is imported when the first question comes that bounds alone do not answer;
without it answers are fewer, never wrong.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from anyshape import errors
from anyshape.declaration import intervals
from anyshape.declaration.expression import (
    ARITHMETIC,
    COMPARISONS,
    Clause,
    Comparison,
    Expression,
    Name,
    Number,
    divisors,
)
from anyshape.declaration.place import Place
from anyshape.declaration.reading import LARGEST, read_clause
from anyshape.declaration.spec import Declaration
from anyshape.errors import DeclarationError

Claim: TypeAlias = str | Clause

_TIMEOUT_MS: Final = 2000
_BRIEF_MS: Final = 300  # for what is only good to know
_MOST_SUBSETS: Final = 500
# Sizes that people run, the likeliest first; each name gets another one where it can.
_TYPICAL: Final = (64, 128, 32, 256, 16, 512, 8, 1024, 4, 2048, 2, 4096, 3, 6, 12, 24, 48, 96, 8192)
# Where no typical size fits: the narrowest of these that holds one.
_RANGES: Final = ((32, 128), (8, 1024), (2, 8192), (2, LARGEST), (0, LARGEST))


# -- contradictions --------------------------------------------------------------------------------------------


def conflict(clauses: Sequence[Clause]) -> tuple[Clause, ...]:
    """The smallest set of these clauses that no sizes satisfy; empty when some do (or none could be shown not to)."""
    if _satisfiable(clauses) is not False:
        return ()
    core = list(clauses)
    for clause in clauses:
        rest = [c for c in core if c is not clause]
        if _satisfiable(rest) is False:
            core = rest
    # Nothing can be left out of it, yet another one may be smaller.
    for size in range(1, len(core)):
        if math.comb(len(clauses), size) > _MOST_SUBSETS:
            break
        for subset in itertools.combinations(clauses, size):
            if _satisfiable(subset) is False:
                return subset
    return tuple(core)


def conflicts(declaration: Declaration) -> None:
    """Raise a `DeclarationError` with the smallest conflicting set of the invariants, if they conflict."""
    core = conflict(declaration.invariants)
    if core:
        count = (
            "this invariant holds for no size"
            if len(core) == 1
            else f"no sizes satisfy these {len(core)} invariants together"
        )
        raise _refusal(count, core, f"take one out: {_shown(core[-1])}")
    for clause in declaration.specialize if isinstance(declaration.specialize, tuple) else ():
        core = conflict((*declaration.invariants, clause))
        if core:
            what = f'specialize: "{clause.text}" never holds'
            raise _refusal(
                what if len(core) == 1 else f"{what} under the invariants", core, f"take it out: {_shown(clause)}"
            )
    _check_hints(declaration)


def _check_hints(declaration: Declaration) -> None:
    """Each hint must be possible, and those that are the only one for their name must be possible together."""
    pins = {
        n: [Clause(f"{n} == {v}", (Comparison(Name(n), "==", Number(v)),), "hints") for v in values]
        for n, values in declaration.hints.items()
    }
    together = [p[0] for p in pins.values() if len(p) == 1]
    for chosen in (*([p] for ps in pins.values() for p in ps), together):
        core = conflict((*declaration.invariants, *chosen))
        if core:
            pin = next(c for c in reversed(core) if c.origin == "hints")
            name = pin.names[0]
            others = {n: v for n, v in declaration.hints.items() if n != name and len(chosen) > 1}
            solved = solve_hints(dataclasses.replace(declaration, hints=others))
            what = f"the hint {pin.text.replace('==', '=')} breaks the invariants"
            raise _refusal(what, core, f'hints={{"{name}": {solved[name]}}}')


def vacuous(declaration: Declaration) -> tuple[Clause, ...]:
    """The clauses of `where` that follow from the other invariants or always hold, and those of `specialize`."""
    kept = list(declaration.where)
    found: list[Clause] = []
    for clause in reversed(declaration.where):
        others = [c for c in kept if c is not clause]
        if _entails((*declaration.facts, *others), clause, timeout_ms=_BRIEF_MS):
            kept = others
            found.insert(0, clause)
    for clause in declaration.specialize if isinstance(declaration.specialize, tuple) else ():
        if _entails(declaration.invariants, clause, timeout_ms=_BRIEF_MS):
            found.append(clause)
    return tuple(found)


def _refusal(what: str, core: Sequence[Clause], fix: str) -> DeclarationError:
    lines: list[str] = []
    for clause in core:
        place = Place(clause.origin, None, f'{clause.origin}: "', clause.text, '"')
        lines.append(place.marked())
    return DeclarationError(what, where="\n         ".join(lines), fix=fix, code="AS012")


def _shown(clause: Clause) -> str:
    return f'"{clause.text}"'


# -- questions -------------------------------------------------------------------------------------------------


def implied(where: Iterable[Claim], predicate: Claim, *, timeout_ms: int = _TIMEOUT_MS) -> bool | None:
    """True when all sizes that satisfy `where` satisfy the predicate, False when none do, None when it depends."""
    facts, claim = [_clause(c) for c in where], _clause(predicate, "predicate")
    if _entails(facts, claim, timeout_ms=timeout_ms):
        return True
    return False if _satisfiable([*facts, claim], timeout_ms=timeout_ms) is False else None


def uncovered(where: Iterable[Claim], covers: Iterable[Claim]) -> dict[str, int] | None:
    """Sizes that satisfy `where` and none of `covers`, or None when there are none: a proof of coverage."""
    facts, clauses = [_clause(c) for c in where], [_clause(c, "covers") for c in covers]
    variables = _names((*facts, *clauses))
    # Small sizes say more than the solver's own choice, and most gaps have one.
    for sizes in _samples(variables):
        if all(c.holds(sizes) for c in facts) and not any(c.holds(sizes) for c in clauses):
            return sizes
    problem = _Problem(_require_z3("a proof of coverage"), variables)
    for clause in facts:
        problem.add(clause)
    for clause in clauses:
        problem.add_negation(clause)
    answer = problem.check()
    if answer is None:
        what = f"whether {', '.join(map(_shown, clauses))} cover everything could not be decided"
        raise DeclarationError(what, where="covers", fix="clauses without products of two names", code="AS012")
    return problem.sizes() if answer else None


def solve_hints(declaration: Declaration, assertions: Iterable[Claim] = ()) -> dict[str, int]:
    """A hint for each name, such that every invariant and assertion holds.

    The hints that were given are kept as far as they fit (the first of several); the rest is solved for, with sizes of
    at least 2 and different ones for different names where there are such.
    """
    given = {n: v[0] for n, v in declaration.hints.items()}
    return _solve(declaration, [_clause(c, "assertion") for c in assertions], given)


def solve_hint_sets(declaration: Declaration, assertions: Iterable[Claim] = ()) -> tuple[dict[str, int], ...]:
    """As `solve_hints`, once for each hint that was given: what autotuning should be tried at."""
    claims = [_clause(c, "assertion") for c in assertions]
    first = {n: v[0] for n, v in declaration.hints.items()}
    found = [_solve(declaration, claims, first)]
    for name, values in declaration.hints.items():
        for value in values[1:]:
            solved = _solve(declaration, claims, {name: value, **{n: v for n, v in first.items() if n != name}})
            if solved[name] == value and solved not in found:
                found.append(solved)
    return tuple(found)


def _solve(declaration: Declaration, assertions: Sequence[Clause], given: Mapping[str, int]) -> dict[str, int]:
    clauses = (*declaration.invariants, *assertions)
    variables = tuple(dict.fromkeys((*given, *declaration.names, *_names(clauses))))
    z3 = _z3()
    problem: _Problem | _Search = _Problem(z3, variables) if z3 is not None else _Search(variables)
    for clause in clauses:
        problem.add(clause)
    if problem.check() is False:
        what = "no sizes satisfy the invariants together with what the program asserts"
        raise _refusal(what, conflict(clauses) or clauses, "take one out, or change the program")
    static = {d.value for s in declaration.shapes for d in s.dims if d.value is not None}
    chosen: dict[str, int] = {}
    for name in variables:
        taken = static | set(chosen.values()) | {v for n, v in given.items() if n not in chosen}
        # Sizes that happen to be equal, to one another or to a static one, answer questions as others would not.
        typical = [v for v in _TYPICAL if v not in taken]
        candidates = [given[name]] if name in given else []
        value = problem.first(name, (*candidates, *typical)) if name in given or name in declaration.names else None
        if value is None:
            value = problem.within(name, taken)
        if value is None:
            what = f"no hint could be found for {name}"
            raise DeclarationError(
                what, where=", ".join(map(_shown, clauses)), fix=f'hints={{"{name}": 64}}', code="AS012"
            )
        problem.fix(name, value)
        chosen[name] = value
    return chosen


# -- the solvers -----------------------------------------------------------------------------------------------


def _satisfiable(clauses: Sequence[Clause], *, timeout_ms: int = _TIMEOUT_MS) -> bool | None:
    """None when it is not known."""
    comparisons = [c for clause in clauses for c in clause.comparisons]
    if intervals.refuted(comparisons):
        return False
    if intervals.exact(comparisons):
        return True
    z3 = _z3()
    if z3 is None:
        return None
    problem = _Problem(z3, _names(clauses), timeout_ms=timeout_ms)
    for clause in clauses:
        problem.add(clause)
    return problem.check()


def _entails(facts: Sequence[Clause], claim: Clause, *, timeout_ms: int = _TIMEOUT_MS) -> bool:
    given = [c for clause in facts for c in clause.comparisons]
    if all(
        intervals.refuted([*given, c.negation]) and not divisors(c.left) + divisors(c.right) for c in claim.comparisons
    ):
        return True
    if all(intervals.exact([*given, c.negation]) for c in claim.comparisons):
        return False
    z3 = _z3()
    if z3 is None:
        return False
    problem = _Problem(z3, _names((*facts, claim)), timeout_ms=timeout_ms)
    for clause in facts:
        problem.add(clause)
    problem.add_negation(claim)
    return problem.check() is False


class _Problem:
    """Clauses over sizes in z3, in a context of its own so that threads do not meet."""

    def __init__(self, z3: Any, variables: Sequence[str], *, timeout_ms: int = _TIMEOUT_MS) -> None:
        self._z3 = z3
        context = z3.Context()
        self._variables = {n: z3.Int(n, context) for n in variables}
        self._solver = z3.Solver(ctx=context)
        self._solver.set("timeout", timeout_ms)
        for variable in self._variables.values():
            self._solver.add(variable >= 0)
        self._context = context

    def add(self, clause: Clause) -> None:
        self._solver.add(self._formula(clause))

    def add_negation(self, clause: Clause) -> None:
        self._solver.add(self._z3.Not(self._formula(clause)))

    def fix(self, name: str, value: int) -> None:
        self._solver.add(self._variables[name] == value)

    def check(self, *extra: Any) -> bool | None:
        answer = self._solver.check(*extra)
        return True if answer == self._z3.sat else False if answer == self._z3.unsat else None

    def sizes(self) -> dict[str, int]:
        model = self._solver.model()
        return {n: model.eval(v, model_completion=True).as_long() for n, v in self._variables.items()}

    def first(self, name: str, candidates: Iterable[int]) -> int | None:
        variable = self._variables[name]
        return next((v for v in candidates if self.check(variable == v)), None)

    def within(self, name: str, taken: Iterable[int]) -> int | None:
        variable = self._variables[name]
        apart = [variable != v for v in taken]
        for low, high in _RANGES:
            for extra in (apart, []):
                if self.check(variable >= low, variable <= high, *extra):
                    return self.sizes()[name]
        return None

    def _formula(self, clause: Clause) -> Any:
        parts: list[Any] = []
        for c in clause.comparisons:
            # z3 gives a division by 0 any value it likes; here it makes the clause false.
            parts.extend(self._term(d) > 0 for d in divisors(c.left) + divisors(c.right))
            parts.append(self._comparison(c))
        return self._z3.And(*parts) if len(parts) > 1 else parts[0]

    def _comparison(self, c: Comparison) -> Any:
        left, right = self._term(c.left), self._term(c.right)
        return COMPARISONS[c.op](left, right)

    def _term(self, expr: Expression) -> Any:
        if isinstance(expr, Number):
            return self._z3.IntVal(expr.value, self._context)
        if isinstance(expr, Name):
            return self._variables[expr.name]
        left, right = self._term(expr.left), self._term(expr.right)
        # z3's division of ints is Python's for divisors from 1 on, and there are no others.
        return left / right if expr.op == "//" else ARITHMETIC[expr.op](left, right)


class _Search:
    """The same over a few hundred likely sizes, where there is no z3."""

    def __init__(self, variables: Sequence[str]) -> None:
        self._variables = tuple(variables)
        self._clauses: list[Clause] = []
        self._fixed: dict[str, int] = {}

    def add(self, clause: Clause) -> None:
        self._clauses.append(clause)

    def fix(self, name: str, value: int) -> None:
        self._fixed[name] = value

    def check(self) -> bool | None:
        return False if intervals.refuted([c for clause in self._clauses for c in clause.comparisons]) else None

    def first(self, name: str, candidates: Iterable[int]) -> int | None:
        return next((v for v in candidates if self._possible({**self._fixed, name: v})), None)

    def within(self, name: str, taken: Iterable[int]) -> int | None:
        apart = set(taken)
        sizes = [*_TYPICAL, *range(2, 1025), 1, 0]
        return self.first(name, [v for v in sizes if v not in apart]) or self.first(name, sizes)

    def _possible(self, sizes: dict[str, int], budget: int = 3) -> bool:
        """Whether the clauses hold, with the names that are left tried at likely sizes."""
        if not all(c.holds(sizes) for c in self._clauses if all(n in sizes for n in c.names)):
            return False
        left = [n for n in self._variables if n not in sizes and any(n in c.names for c in self._clauses)]
        if not left:
            return True
        # Each level multiplies the work, so the search narrows as it deepens.
        likely = (*_TYPICAL, *range(129 if budget == 3 else 17))
        return budget > 0 and any(self._possible({**sizes, left[0]: v}, budget - 1) for v in likely)


@functools.cache
def _z3() -> Any:
    try:
        import z3
    except ImportError:
        return None
    return z3


def _require_z3(needed_for: str) -> Any:
    z3 = _z3()
    if z3 is None:
        raise errors.missing("z3-solver", needed_for=needed_for, extra="solver")
    return z3


def _clause(claim: Claim, origin: str = "where") -> Clause:
    if isinstance(claim, Clause):
        return claim
    return read_clause(Place(origin, None, f'{origin} = "', claim, '"'), origin=origin)


def _names(clauses: Iterable[Clause]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(n for c in clauses for n in c.names))


def _samples(variables: Sequence[str]) -> Iterable[dict[str, int]]:
    sizes = (0, 1, 2, 3, 7, 8, 16, 64, 1024)
    picks = itertools.islice(itertools.product(sizes, repeat=len(variables)), 1000)
    return (dict(zip(variables, pick, strict=True)) for pick in picks)
