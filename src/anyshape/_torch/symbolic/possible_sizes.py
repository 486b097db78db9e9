"""Sample sizes consistent with all known facts, to see quickly that a question is open.

Owns which sets are tried. A question that two of them answer differently is open; to find that out by simplification
takes torch milliseconds, and most questions are open. Sizes that no fact brings together are looked at apart, and what
is learnt is looked at once: the cost of a question does not grow with the inputs of a program.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import sympy
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

_LOG = logging.getLogger("torch.utils._sympy.interp")
Number = int | float
Sizes = Mapping[sympy.Basic, Number]
# An expression and the value that it has; of a size that another one stands for, that it is in its range.
Fact = tuple[sympy.Basic, Any]
_IN_RANGE = object()
_WANTED = ((0,), (1,), (5, 7, 11, 13, 17, 19, 23), (4_099, 4_111, 4_127, 4_129, 4_133))


class PossibleSizes:
    """Follows what `env` knows for as long as that only grows."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self._facts: dict[sympy.Basic, dict[Fact, None]] = {}  # by each of the sizes that they are about
        self._places: dict[sympy.Basic, int] = {}  # which of the wanted numbers a size has
        self._replaced = self._baked = self._axioms = 0  # how many are known here
        self._divisible: set[sympy.Basic] = set()
        self._agreeing: dict[frozenset[sympy.Basic], list[Sizes]] = {}

    def leave_open(self, expr: sympy.Basic) -> bool:
        """Whether `expr` differs between some of the sizes that are possible."""
        try:
            asked = self._now(expr)
        except ZeroDivisionError:
            return False
        values = (_value(asked, sizes) for sizes in self._possible(asked.free_symbols))
        first = next(values, None)
        return first is not None and any(value is not None and value != first for value in values)

    def grow(self) -> None:
        """Something may have been learnt."""
        env = self._env
        self._agreeing.clear()
        for symbol in itertools.islice(env.recording.hints, len(self._places), None):
            self._places[symbol] = len(self._places)
        for symbol in itertools.islice(env.replacements, self._replaced, None):
            self._replace(symbol)
        self._replaced = len(env.replacements)
        for expr, value in itertools.islice(env.baked.items(), self._baked, None):
            self._add((expr, int(value)))
        self._baked = len(env.baked)
        for fact, value in itertools.islice(env.axioms.items(), self._axioms, None):
            if value is sympy.true:
                self._add((fact, True))
        self._axioms = len(env.axioms)
        for expr in env.divisible - self._divisible:
            self._add((expr, 0))
        self._divisible |= env.divisible

    def _add(self, fact: Fact) -> None:
        expr, value = fact
        now = expr if value is _IN_RANGE else self._now(expr)
        for symbol in self._about((now, value)):
            self._facts.setdefault(symbol, {})[now, value] = None

    def _replace(self, symbol: sympy.Basic) -> None:
        """From here on another expression stands for a size."""
        facts = self._facts.pop(symbol, {})
        for fact in facts:
            for other in fact[0].free_symbols:
                self._facts.get(other, {}).pop(fact, None)
        for fact in facts:
            self._add(fact)
        if not self._env.replacements[symbol].is_Symbol:  # which has the range of both
            self._add((symbol, _IN_RANGE))

    def _now(self, expr: sympy.Basic) -> sympy.Basic:
        """With what stands for sizes in their place."""
        known = self._env.replacements
        while found := expr.free_symbols & known.keys():
            expr = expr.xreplace({symbol: known[symbol] for symbol in found})
        return expr

    def _about(self, fact: Fact) -> set[sympy.Basic]:
        found: set[sympy.Basic] = (self._now(fact[0]) if fact[1] is _IN_RANGE else fact[0]).free_symbols
        return found

    def _possible(self, symbols: Iterable[sympy.Basic]) -> list[Sizes]:
        """Numbers for these sizes, and for all that facts bring together with them."""
        together, facts, waiting = set(symbols), dict[Fact, None](), list(symbols)
        while waiting:
            for fact in self._facts.get(waiting.pop(), ()):
                facts[fact] = None
                found = self._about(fact) - together
                together |= found
                waiting += found
        key = frozenset(together)
        if key not in self._agreeing:
            self._agreeing[key] = [s for s in self._tried(together) if all(self._holds(f, s) for f in facts)]
        return self._agreeing[key]

    def _tried(self, symbols: set[sympy.Basic]) -> Iterator[Sizes]:
        hints = {s: n for s in symbols if (n := self._env.recording.hints.get(s)) is not None}
        captured: Sizes = {s: int(n) if n.is_Integer else float(n) for s, n in hints.items()}
        if self._are_in_range(captured):
            yield captured
        for wanted in _WANTED:
            sizes = {s: self._at_least(s, wanted) if type(n) is int else n for s, n in captured.items()}
            if self._are_in_range(sizes):
                yield sizes

    def _at_least(self, symbol: sympy.Basic, wanted: tuple[int, ...]) -> int:
        number = wanted[self._places[symbol] % len(wanted)]
        least = self._env.var_to_range[symbol].lower
        return max(int(least), number) if least.is_Integer else number

    def _are_in_range(self, sizes: Sizes) -> bool:
        bounds = self._env.var_to_range
        return all(bounds[s].lower <= n <= bounds[s].upper for s, n in sizes.items() if type(n) is int)

    def _holds(self, fact: Fact, sizes: Sizes) -> bool:
        expr, wanted = fact
        if wanted is not _IN_RANGE:
            value = _value(expr, sizes)
            return value is True if wanted is True else value == wanted
        value, bounds = _value(self._now(expr), sizes), self._env.var_to_range.get(expr)
        return value is not None and (
            bounds is None or type(value) is not int or bool(bounds.lower <= value <= bounds.upper)
        )


def _value(expr: sympy.Basic, sizes: Sizes) -> Number | None:
    """A number or a truth value; None where it depends on what is not known, or has no value."""
    said, _LOG.disabled = _LOG.disabled, True  # what has no value is nothing to be told of
    try:
        return sympy_interp(PythonReferenceAnalysis, sizes, expr)  # type: ignore[no-any-return]
    except Exception:  # an unbacked size, `n // 0`, or a function that torch has no Python for
        return None
    finally:
        _LOG.disabled = said
