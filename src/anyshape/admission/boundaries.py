"""The sizes at which a traced graph stops being right, found ahead of time for export.

Owns the question that a compiled program answers call by call: at which sizes is the graph another one than was traced?
An exported program meets sizes that nobody can verify any more, so the sizes at which anything could change are tried
here: every size at 0 and at 1, and both sides of every other question that was asked. Where a node differs, the program
asserts that such sizes do not come.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sympy

from anyshape._torch.fake_runs import concrete, verify
from anyshape.assumptions.answers import Answer, NodeRecord
from anyshape.assumptions.recording import Recording

Sizes = dict[sympy.Basic, sympy.Basic]

_UNITS = (0, 1)
_MOST_TOGETHER = 3  # sizes that are tried at 0 and 1 together, of those of one call
_TRIED = (2, 3, 4, 5, 7, 8, 9, 16, 17, 63, 64, 128, 129, 1000, 4096, 0, 1)  # for questions beyond 0 and 1
_TRIED_TOGETHER = 8  # of those, for two sizes at once
_MOST_FLIPS = 6  # sizes at which such a question is tried
_MOST_COMPLETIONS = 4  # sizes that may have to follow one that was set


@dataclasses.dataclass(frozen=True)
class Limit:
    """What a program needs of sizes, and who asked."""

    fact: sympy.Basic
    where: str
    asked_by: str = "framework"
    chosen: bool = False  # a way was taken by it: at other sizes the graph is another one, unless eager raises


def limits(recording: Recording) -> list[Limit]:
    """All that a traced program needs of the sizes of a call, so that it does there what eager does."""
    found = [Limit(fact, "") for fact, answer in recording.facts.items() if answer.asked_by != "implied"]
    found += [Limit(a.fact, a.line or a.where) for a in recording.requirements.values()]
    for answer in recording.predicates.values():
        where = answer.where if answer.asked_by == "user" else answer.line or answer.where
        found.append(Limit(answer.fact, where, answer.asked_by, chosen=True))
    found += [Limit(fact, where) for fact, where in recording.oblivious.assertions.items()]
    search = _Search(recording, found)
    with concrete.quietly():
        search.try_questions()
        search.try_units()
    return _needed(list(search.found.values()))


def _needed(found: Sequence[Limit]) -> list[Limit]:
    """Those that the sizes which have to be a certain number do not settle, with these numbers put in."""
    pinned = {x.fact.args[0]: x.fact.args[1] for x in found if _is_pin(x.fact)}
    needed: dict[sympy.Basic, Limit] = {}
    for limit in found:
        fact = limit.fact if _is_pin(limit.fact) else limit.fact.xreplace(pinned)
        if fact != sympy.true:
            needed.setdefault(fact, dataclasses.replace(limit, fact=fact))
    return list(needed.values())


def _is_pin(fact: sympy.Basic) -> bool:
    return isinstance(fact, sympy.Eq) and fact.args[0].is_Symbol and fact.args[1].is_Integer


def beyond(recording: Recording, limit: Limit, others: Iterable[Limit]) -> Iterator[Sizes]:
    """Sizes at which `limit` is broken and the others hold: each of its sizes at an ordinary one, at 1 and at 0."""
    search = _Search(recording, others)
    answer = Answer(limit.fact, True, "", "")
    for symbol in sorted(limit.fact.free_symbols, key=str):
        for values in (_TRIED[:-2], (1,), (0,)):
            yield from itertools.islice(search.flips(answer, values, only=symbol), 1)


class _Search:
    """The limits of one recording, as they are found."""

    def __init__(self, recording: Recording, known: Iterable[Limit]) -> None:
        self.recording = recording
        self.found: dict[sympy.Basic, Limit] = {}
        for limit in known:
            self._add(limit)
        self._torch = _distinct(n for n in recording.nodes if not n.opaque)
        self._aten = _distinct(recording.aten)

    def _add(self, limit: Limit) -> None:
        if limit.fact not in (sympy.true, sympy.false) and self._about_sizes(limit.fact):
            self.found.setdefault(limit.fact, limit)

    def _about_sizes(self, fact: sympy.Basic) -> bool:
        symbols = self.recording.symbols
        return all(s in symbols and symbols[s].kind == "size" for s in fact.free_symbols)

    # -- sizes of 0 and 1 --------------------------------------------------------------------------------------

    def try_units(self) -> None:
        """Every node, with its sizes at 0 and at 1, one, two and three of them together."""
        nodes = [(n, self._sizes_of(n)) for n in (*self._torch, *self._aten)]
        cases: dict[tuple[tuple[sympy.Basic, int], ...], None] = {}
        for _, symbols in nodes:
            for case in _unit_cases(symbols):
                cases[case] = None
        for case in sorted(cases, key=len):
            sizes = self._complete(dict(case))
            if sizes is None:
                continue
            wanted = {s for s, _ in case}
            for node, symbols in nodes:
                # Where all that a call asked is answered as before, it is the call that was traced.
                same = bool(node.decisions) and node.holds(sizes)
                if wanted <= set(symbols) and not same and self._differs(node, sizes):
                    facts = [sympy.Ne(s, v) for s, v in case]
                    self._add(Limit(sympy.Or(*facts), self._place(node)))
                    break

    def _sizes_of(self, node: NodeRecord) -> tuple[sympy.Basic, ...]:
        used: set[sympy.Basic] = set().union(*(e.free_symbols for e in node.decisions))
        for leaf in concrete.leaves((node.args, node.kwargs)):
            if isinstance(leaf, concrete.TensorSnapshot):
                used = used.union(*(n.free_symbols for n in leaf.sizes))
            elif isinstance(leaf, concrete.ScalarSnapshot):
                used |= leaf.expr.free_symbols
        # Under oblivious semantics a size is never 0 or 1 to the program, on purpose.
        symbols, oblivious = self.recording.symbols, self.recording.oblivious.symbols
        sizes = (s for s in used if s in symbols and symbols[s].kind == "size" and s not in oblivious)
        return tuple(sorted(sizes, key=str))

    def _differs(self, node: NodeRecord, sizes: Sizes) -> bool:
        if _attends_to_nothing(node, sizes):
            return True
        return verify.differs(node, sizes, strict=node.chooses_otherwise(sizes)) is not None

    def _place(self, node: NodeRecord) -> str:
        return next((a.where for a in node.decisions.values() if a.where), "") or node.where

    # -- other questions ---------------------------------------------------------------------------------------

    def try_questions(self) -> None:
        """Every question that does not only tell 0 and 1 from the rest, on its other side."""
        for expr, (answer, nodes) in self._questions().items():
            if answer.fact in self.found or self.recording.oblivious.concerns(expr) or not self._about_sizes(expr):
                continue
            flips = itertools.islice(self.flips(answer), _MOST_FLIPS)
            if any(self._differs(node, sizes) for sizes in flips for node in nodes):
                self._add(Limit(answer.fact, answer.where or next((n.where for n in nodes if n.where), "")))

    def _questions(self) -> dict[sympy.Basic, tuple[Answer, list[NodeRecord]]]:
        found: dict[sympy.Basic, tuple[Answer, list[NodeRecord]]] = {}
        env = self.recording.env
        assert env is not None

        def ask(answer: Answer, nodes: Sequence[NodeRecord]) -> None:
            if answer.outcome and isinstance(answer.expr, sympy.And):
                for part in answer.expr.args:
                    ask(dataclasses.replace(answer, expr=part), nodes)
            elif env.settled_from_two(answer.expr) is None:
                found.setdefault(answer.expr, (answer, []))[1].extend(nodes)

        for node in self._torch:
            for answer in node.decisions.values():
                ask(answer, [node])
        for expr, answer in self.recording.aot_decisions.items():
            ask(answer, [n for n in self._aten if expr.free_symbols & set(self._sizes_of(n))])
        return found

    def flips(self, answer: Answer, tried: Sequence[int] = _TRIED, only: sympy.Basic | None = None) -> Iterator[Sizes]:
        """Allowed sizes at which a question is answered otherwise: one size changed, then two."""
        symbols = sorted(answer.expr.free_symbols, key=str)
        hints = {s: int(self.recording.hints[s]) for s in symbols}
        for count in (1, 2) if only is None else (1,):
            for chosen in itertools.combinations(symbols if only is None else [only], count):
                for values in itertools.product(tried[: _TRIED_TOGETHER if count > 1 else None], repeat=count):
                    case = hints | dict(zip(chosen, values, strict=True))
                    if not answer.holds({s: sympy.Integer(v) for s, v in case.items()}):
                        sizes = self._complete(case)
                        if sizes is not None:
                            yield sizes

    # -- allowed sizes -----------------------------------------------------------------------------------------

    def _complete(self, case: Mapping[sympy.Basic, int], most: int = _MOST_COMPLETIONS) -> Sizes | None:
        """Sizes with those of `case` at which all known limits hold; None if none are found."""
        sizes: Sizes = dict(self.recording.hints) | {s: sympy.Integer(v) for s, v in case.items()}
        broken = next((f for f in self.found if not _holds(f, sizes)), None)
        if broken is None:
            return sizes
        for symbol in sorted(broken.free_symbols - case.keys(), key=str) if most else ():
            for value in _candidates(broken, symbol, sizes):
                if _holds(broken, {**sizes, symbol: sympy.Integer(value)}):
                    completed = self._complete({**case, symbol: value}, most - 1)
                    if completed is not None:
                        return completed
        return None


def _attends_to_nothing(node: NodeRecord, sizes: Sizes) -> bool:
    """Whether attention is over a length of 0 or no heads: fused CPU kernels, which it may become, divide by it."""
    if "scaled_dot_product_attention" not in str(node.call):
        return False
    tensors = [x for x in concrete.leaves(node.args) if isinstance(x, concrete.TensorSnapshot)][:3]
    return any(n.xreplace(sizes) == 0 for t in tensors for n in t.sizes[-3:-1])


def _unit_cases(symbols: Sequence[sympy.Basic]) -> Iterator[tuple[tuple[sympy.Basic, int], ...]]:
    for count in range(1, min(len(symbols), _MOST_TOGETHER if len(symbols) < 6 else 2) + 1):
        for chosen in itertools.combinations(symbols, count):
            for values in itertools.product(_UNITS, repeat=count):
                yield tuple(zip(chosen, values, strict=True))


def _holds(fact: sympy.Basic, sizes: Sizes) -> bool:
    try:
        return bool(fact.xreplace(sizes) == sympy.true)
    except (ZeroDivisionError, AssertionError):
        return False


def _candidates(fact: sympy.Basic, symbol: sympy.Basic, sizes: Sizes) -> Iterator[int]:
    """Values for a size that may repair a fact: what an equality gives, what is there already, small ones."""
    if isinstance(fact, sympy.Eq) and symbol in fact.args:
        other = fact.args[1] if fact.args[0] == symbol else fact.args[0]
        value = other.xreplace(sizes)
        if value.is_Integer and value >= 0:
            yield int(value)
        return
    seen = dict.fromkeys(int(v) for v in sizes.values() if v.is_Integer and v >= 0)
    yield from dict.fromkeys((*seen, *range(17), *_TRIED))


def _distinct(nodes: Iterable[NodeRecord]) -> list[NodeRecord]:
    """One of each call: a model of many layers makes the same ones over and over."""
    found: dict[Any, NodeRecord] = {}
    for node in nodes:
        plain = concrete.map_leaves(_without_storage, (node.args, node.kwargs, node.result))
        found.setdefault((str(node.call), str(plain), str(sorted(map(str, node.decisions)))), node)
    return list(found.values())


def _without_storage(leaf: Any) -> Any:
    return dataclasses.replace(leaf, storage=0) if isinstance(leaf, concrete.TensorSnapshot) else leaf
