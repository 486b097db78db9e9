"""The checks of a program as generated straight-line Python over ints, live or from a file.

Owns the function of a key that a program is asked by, live or loaded from a file. It knows what has been verified for
all sizes that answer alike, and says where that is not enough; it runs no node and needs no expressions.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sympy

from anyshape._torch.symbolic import python_code
from anyshape.assumptions.stride_order import like_channels_last
from anyshape.foundation.call_keys import ADMITTED, UNTOLD

if TYPE_CHECKING:
    from anyshape.admission.admission import Admission, Unit

_NAME = re.compile(r"\b[A-Za-z_]\w*")

Conjunction = tuple[str, ...]


class Facts:
    """Facts as text. A question without an answer (`n % m` where m is 0) is no fact, so what divides is asked first."""

    def __init__(self) -> None:
        self._printed: dict[sympy.Basic, tuple[str, tuple[str, ...]]] = {}

    def text(self, expr: sympy.Basic, outcome: bool | None = True) -> str:
        if outcome is None:
            return "False"
        if expr not in self._printed:
            self._printed[expr] = (
                python_code.expression(expr),
                tuple(map(python_code.expression, python_code.divisors(expr))),
            )
        text, divisors = self._printed[expr]
        text = f"({text})" if outcome else f"(not ({text}))"
        return f"({' and '.join([*(f'({d}) != 0' for d in divisors), text])})" if divisors else text

    def of(self, facts: Iterable[sympy.Basic], names: Mapping[str, str]) -> Conjunction:
        """Facts about the symbols of a kind, of the symbols of one of its nodes."""
        texts = (_NAME.sub(lambda m: names.get(m[0], m[0]), self.text(fact)) for fact in facts)
        return tuple(dict.fromkeys(texts))


class Writer:
    """Writes the function of one admission; printed facts are kept from one time to the next."""

    def __init__(self, admission: Admission, *, live: bool) -> None:
        self._admission = admission
        self._live = live  # the code may call what is not Python's own
        self._facts = Facts()
        self.reasons: list[str] = []

    def lines(self) -> list[str]:
        """The body of the function, without the names of the sizes."""
        self.reasons = []
        first = [*self._layouts(), *self._answers()]
        units = [self._unit(u, number) for number, u in enumerate(self._admission.units)]
        assumed = self._assumed()
        aten = [self._unit(u, None) for u in self._admission.aten_units] if assumed else []
        uses = collections.Counter(t for u in (*units, *aten) for c in u.conjunctions() for t in c)
        uses.update(assumed)
        hoisted = [t for t, count in uses.items() if count > 1 and " != 0 and " not in t]
        short = {text: f"f{i}" for i, text in enumerate(hoisted)}
        lines = [*first, *(f"{name} = {text}" for text, name in short.items())]
        lines += ["b = 0"] if any(u.lying for u in units) else []
        lines += dict.fromkeys(line for u in units for line in u.lines(short))
        lines += self._unobservable(short) if any(u.lying for u in units) else []
        inner = list(dict.fromkeys(line for u in aten for line in u.lines(short)))
        if inner:
            lines += [f"if not {_all(assumed, short)}:", *(f"    {line}" for line in inner)]
        return [*lines, f"return {ADMITTED}"]

    def _reason(self, text: str) -> int:
        self.reasons.append(text)
        return len(self.reasons) - 1

    def _layouts(self) -> Iterable[str]:
        """Where nothing is addressed strides say nothing, but for those of an image or signal: it may be channels
        last."""
        for start, dims, strides in self._admission.layout:
            middle, end = start + dims, start + 2 * dims
            wanted = list(map(python_code.expression, strides))
            same = " and ".join(f"v[{middle + i}] == {text}" for i, text in enumerate(wanted)) or "True"
            addressed = " and ".join(f"(v[{start + i}] <= 1 or v[{middle + i}] == {t})" for i, t in enumerate(wanted))
            order = dims in (4, 5) or (self._admission.convolves and dims in (2, 3))
            otherwise = self._reason("the layout that it was captured for") if self._live else UNTOLD
            if self._admission.needs_elements(strides):
                yield f"if 0 in v[{start}:{middle}]: return {otherwise}"
            if order and self._live:
                sizes, expected = f"v[{start}:{middle}]", f"({', '.join(wanted)},)"
                like = f"like({sizes}, v[{middle}:{end}]) == like({sizes}, {expected})"
                addressed = f"({addressed} and {like})"
            elif order:
                addressed = "False"
            yield f"if not (({same}) or 0 in v[{start}:{middle}] or ({addressed or 'True'})): return {otherwise}"

    def _answers(self) -> Iterable[str]:
        for answer in self._admission.answers:
            ways = [self._facts.text(answer.expr, answer.outcome)]
            for facts in self._admission.joined.get(answer.fact, ()):
                ways.append(_all(self._facts.of(facts, {}), {}))
            reason = self._reason(self._admission.recording.text(answer.fact))
            yield f"if not ({' or '.join(ways)}): return {reason}"

    def _assumed(self) -> Conjunction:
        answers = self._admission.recording.aot_decisions.values()
        return tuple(dict.fromkeys(self._facts.text(a.expr, a.outcome) for a in answers))

    def _unit(self, unit: Unit, number: int | None) -> _UnitText:
        names = dict(zip(map(str, unit.kind.symbols), map(str, unit.symbols), strict=True))
        made = _UnitText(number)
        if unit.assumed:
            made.holding.append(tuple(dict.fromkeys(self._facts.text(a.expr, a.outcome) for a in unit.assumed)))
        for local in unit.kind.classes:
            facts = self._facts.of(local.facts, names)
            if local.difference is None:
                made.holding.append(facts)
            elif number is not None and self._admission.may_be_unobservable(unit, local):
                made.lying.append(facts)
            else:
                made.refused.append((facts, self._reason(f"other sizes ({local.difference})")))
        return made

    def _unobservable(self, short: Mapping[str, str]) -> Iterable[str]:
        ways = [f"(b == {bits} and {_all(self._facts.of(f, {}), short)})" for bits, f in self._admission.unobservable]
        yield f"if b and not ({' or '.join(ways) or 'False'}): return {UNTOLD}"


class _UnitText:
    """The conditions of one node."""

    def __init__(self, number: int | None) -> None:
        self._number = number
        self.holding: list[Conjunction] = []
        self.lying: list[Conjunction] = []  # it holds but for strides
        self.refused: list[tuple[Conjunction, int]] = []

    def conjunctions(self) -> list[Conjunction]:
        return [*self.holding, *self.lying, *(facts for facts, _ in self.refused)]

    def lines(self, short: Mapping[str, str]) -> list[str]:
        holds = " or ".join(dict.fromkeys(_all(c, short) for c in self.holding)) or "False"
        if holds == "True":
            return []
        ends = [f"{reason} if {_all(facts, short)} else " for facts, reason in self.refused]
        leave = f"return {''.join(ends)}{UNTOLD}"
        if not self.lying:
            return [f"if not ({holds}): {leave}"]
        lying = " or ".join(dict.fromkeys(_all(c, short) for c in self.lying))
        # One line, so that lines of nodes that ask the same are the same.
        return [f"if not ({holds}):\n    if not ({lying}): {leave}\n    b |= {1 << (self._number or 0)}"]


def _all(facts: Conjunction, short: Mapping[str, str]) -> str:
    texts = [short.get(fact, fact) for fact in facts]
    return f"({' and '.join(texts)})" if texts else "True"


def names(places: Mapping[Any, str], lines: Sequence[str]) -> list[str]:
    """Assignments of the sizes that lines speak of."""
    used = {m for line in lines for m in _NAME.findall(line)}
    return [f"{symbol} = {place}" for symbol, place in places.items() if str(symbol) in used]


def compiled(admission: Admission, writer: Writer) -> Callable[[Sequence[int]], int]:
    """The function for this process."""
    lines = writer.lines()
    return python_code.compiled([*names(admission.places, lines), *lines], {"like": like_channels_last})


def told(admission: Admission) -> tuple[str, tuple[str, ...]]:
    """The text of `evaluate(v)` for a file, and what its answers say; empty where there is no such text."""
    writer = Writer(admission, live=False)
    lines = writer.lines()
    text = python_code.text([*names(admission.places, lines), *lines])
    return (text, tuple(writer.reasons)) if text else ("", ())
