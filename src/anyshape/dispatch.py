"""Which sizes a program serves.

Owns the key of a call, the classes a program admits, and the lookup on the hot path. Knows recordings and the verifier;
how a program was captured or compiled is not its business.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sympy

from anyshape import limits, unseen, verify
from anyshape._torch import concrete, python_code
from anyshape.answers import Answer, InputRecord, NodeRecord
from anyshape.keys import key_function
from anyshape.orders import like_channels_last
from anyshape.recording import Recording
from anyshape.wording import describe_source

AOT = -1  # the place of the nodes that AOTAutograd made, among those of the captured graph
MOST_COMPARED = 64  # keys that are tried when a program may have made another one needless


class _Nothing(dict[Any, bool]):
    """What a retired program knows: that it serves no key."""

    def get(self, key: Any, default: Any = None) -> Any:
        return False


@dataclasses.dataclass(frozen=True)
class Refusal:
    """Why a program does not serve some sizes."""

    reason: str  # layout | predicate | requirement | invariant | class
    text: str


def holds(recording: Recording, sizes: Mapping[sympy.Basic, sympy.Basic]) -> bool:
    """Whether a capture holds at `sizes`: asked of the very call that is being captured, before it is compiled."""
    if not all(a.holds(sizes) for a in _answers(recording)):
        _blame(recording, _answers(recording), sizes)
        return False
    empty = any(sizes.get(s) == 0 for s, r in recording.symbols.items() if r.kind == "size")
    if empty and _needs_elements(recording):
        return False
    lying_otherwise: list[NodeRecord] = []
    mode = concrete.exact_mode()
    for node in recording.nodes:
        strict = node.chooses_otherwise(sizes)
        # A copy in the place of a view shows; under oblivious semantics only where it is written to.
        loose = node.loosened and (recording.writes or not recording.oblivious.symbols)
        if not loose and node.holds(sizes):
            continue
        difference = verify.differs(node, sizes, strict=strict, mode=mode)
        if difference is None:
            continue
        lying_otherwise.append(node)
        if not unseen.may_be(recording, node, difference, strict=strict):
            _blame(recording, node.decisions.values(), sizes)
            return False
    if lying_otherwise and not unseen.holds(recording, lying_otherwise, sizes):
        _blame(recording, [a for node in lying_otherwise for a in node.decisions.values()], sizes)
        return False
    if not recording.aot_contradictory and all(a.holds(sizes) for a in recording.aot_decisions.values()):
        return True
    if all(verify.differs(node, sizes, mode=mode) is None for node in verify.distinct(recording.aten)):
        return True
    _blame(recording, recording.aot_decisions.values(), sizes)
    return False


def _blame(recording: Recording, answers: Iterable[Answer], sizes: Mapping[sympy.Basic, sympy.Basic]) -> None:
    for answer in answers:
        if not answer.holds(sizes):
            recording.blame(answer.expr)


def _needs_elements(recording: Recording, strides: Sequence[sympy.Expr] = ()) -> bool:
    """Whether a tensor that was given these strides has to have elements.

    Those of a tensor without are not the products of sizes, and may be read. And Inductor's GPU code reads the one row
    that all rows of an expanded tensor are, whether or not there are any (2.11 to 2.15).
    """
    return (recording.reads_strides and recording.differentiates) or (recording.on_gpu and 0 in strides)


def _answers(recording: Recording) -> list[Answer]:
    return [*recording.predicates.values(), *recording.requirements.values(), *recording.facts.values()]


class Admission:
    """The sizes a program serves: those whose answers are the capture's own, and those verified since.

    An instance is called with the program's inputs, as a guard, and says whether they belong to it.
    """

    def __init__(self, recording: Recording, inputs: Sequence[InputRecord]) -> None:
        self.recording = recording
        self.inputs = tuple(inputs)
        self.known: dict[tuple[int, ...], bool] = {}
        self.refusals: dict[tuple[int, ...], Refusal] = {}
        self.classes = 1
        self.last: Refusal | None = None  # why the latest call that was refused was refused
        self.verify_seconds = 0.0
        self._lock = threading.RLock()
        self._most_keys = limits.keys()
        self._verdicts: dict[int, dict[tuple[int, ...], verify.Difference | None]] = {}
        self.places: dict[sympy.Symbol, str] = {}
        self._build()

    @property
    def guard(self) -> str:
        """The text of the call that the guard makes."""
        return ", ".join(i.source for i in self.inputs)

    def __call__(self, *values: Any) -> bool:
        key = self._key(values)
        verdict = self.known.get(key)
        if verdict is None:
            verdict = self._learn(key)
        if not verdict:
            self.last = self.refusals.get(key)
        return verdict

    @property
    def admits_all(self) -> bool:
        """Whether nothing is asked of a call: no answer, no class, no stride that has to be some expression."""
        recording = self.recording
        own = [stride in recording.loose_strides for i in self.inputs for stride in i.strides]
        return all(own) and not (self.answers or self.nodes or recording.aot_decisions)

    def covers(self, other: Admission) -> bool:
        """Whether all that `other` has served would be served here."""
        served = [key for key, admitted in other.known.items() if admitted]
        ranks = [(i.source, len(i.sizes)) for i in self.inputs]
        alike = self.parts == other.parts and ranks == [(i.source, len(i.sizes)) for i in other.inputs]
        return alike and 0 < len(served) <= MOST_COMPARED and all(self.refuses(key) is None for key in served)

    def admit_captured(self) -> None:
        """The sizes of the capture are served: it was verified at them before it was compiled."""
        key: list[sympy.Basic] = []
        values = dict(self.recording.actuals)
        offsets = {r.text: s for s, r in self.recording.symbols.items() if r.kind == "offset" and s in self.places}
        for record in self.inputs:
            offset = offsets.get(_offset_text(record.source))
            parts = [*record.sizes, *(record.strides if record.kind == "tensor" else ()), *([offset] if offset else ())]
            key += [part.xreplace(values) for part in parts]
        if all(value.is_Integer for value in key):
            self.known[tuple(map(int, key))] = True

    def retire(self) -> None:
        """From here on nothing is served."""
        self.known = _Nothing()

    # -- set-up ------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        recording = self.recording
        answers = self.answers = _answers(recording)
        used: set[sympy.Basic] = set()
        for answer in answers:
            used |= answer.expr.free_symbols
        for node in recording.nodes:
            for expr in node.decisions:
                used |= expr.free_symbols
        for expr in recording.aot_decisions:
            used |= expr.free_symbols
        parts, index, layout = [], 0, []
        offsets = {r.text: s for s, r in recording.symbols.items() if r.kind == "offset" and s in used}
        by_text = {r.text: s for s, r in recording.symbols.items() if r.kind == "size" and s in used}
        for n, record in enumerate(self.inputs):
            if record.kind == "number":
                parts.append(f"a[{n}]")
                self._place(record.sizes[0], index)
                index += 1
                continue
            dims = len(record.sizes)
            parts.append(f"*a[{n}].shape, *a[{n}].stride()")
            for i, size in enumerate(record.sizes):
                self._place(size, index + i)
                # The base of a view may be another input: it goes by that one's symbols, and was asked by its own.
                own = by_text.get(f"{describe_source(record.source)}.shape[{i}]")
                if own is not None:
                    self._place(own, index + i)
            for i, stride in enumerate(record.strides):
                if stride.is_Symbol and recording.symbols[stride].kind == "stride":
                    self._place(stride, index + dims + i)
            layout.append((index, dims, record.strides))
            index += 2 * dims
            offset = offsets.get(_offset_text(record.source))
            if offset is not None:
                parts.append(f"a[{n}].storage_offset()")
                self._place(offset, index)
                index += 1
        self.parts = tuple(parts)
        self._key: Callable[[Sequence[Any]], tuple[int, ...]] = key_function(parts)
        # A symbol that no input binds keeps the value it had at capture.
        for symbol in used - self.places.keys():
            self.places[symbol] = str(recording.hints[symbol])
        self._strides = python_code.function([s for _, _, strides in layout for s in strides], self.places)
        self.layout = layout
        self.convolves = any("conv" in node.name for node in recording.nodes)
        self._facts = python_code.function([a.expr for a in answers], self.places)
        self.nodes: list[tuple[NodeRecord, Callable[..., tuple[Any, ...]], tuple[bool, ...]]] = []
        for node in recording.nodes:
            if node.decisions:
                outcomes = tuple(a.outcome for a in node.decisions.values())
                self.nodes.append((node, python_code.function(list(node.decisions), self.places), outcomes))

        self._aot = python_code.function(list(recording.aot_decisions), self.places)
        self._aot_assumed = tuple(a.outcome for a in recording.aot_decisions.values())
        self._aot_verdicts: dict[tuple[int, ...], verify.Difference | None] = {}
        self.paths: dict[int, list[tuple[list[sympy.Basic], Callable[..., tuple[Any, ...]]]]] = {}
        self._followed: set[tuple[int, tuple[Any, ...]]] = set()
        self._first_like: dict[int, int] = {}
        self._first: dict[Any, int] = {}
        self._unseen: list[tuple[tuple[int, ...], Callable[..., tuple[Any, ...]]]] = []

    def _place(self, expr: sympy.Basic, index: int) -> None:
        if expr.is_Symbol and expr not in self.places:
            self.places[expr] = f"v[{index}]"

    # -- the slow path -----------------------------------------------------------------------------------------

    def _learn(self, key: tuple[int, ...]) -> bool:
        with self._lock:
            verdict = self.known.get(key)
            if verdict is None:
                try:
                    refusal = self.refuses(key)
                except Exception as error:  # a guard must not raise; what cannot be told is not admitted
                    refusal = Refusal("class", f"could not be verified: {type(error).__name__}: {error}")
                if len(self.known) >= self._most_keys:  # verdicts on classes stay, so a key is soon learnt again
                    self.known.clear()
                    self.refusals.clear()
                if refusal is not None:
                    self.refusals[key] = refusal
                verdict = self.known[key] = refusal is None
            return verdict

    def refuses(self, key: tuple[int, ...]) -> Refusal | None:
        strides = iter(self._strides(key))
        for start, dims, expressions in self.layout:
            sizes = key[start : start + dims]
            given, wanted = key[start + dims : start + 2 * dims], tuple(next(strides) for _ in expressions)
            if 0 in sizes and _needs_elements(self.recording, expressions):
                return Refusal("layout", "strides of a tensor without elements, which are read")
            if 0 in sizes or given == wanted:
                continue
            address = any(n > 1 and a != b for n, a, b in zip(sizes, given, wanted, strict=True))
            seen = dims > 2 or self.convolves  # to a convolution a matrix is a signal without a batch
            if address or (seen and like_channels_last(sizes, given) != like_channels_last(sizes, wanted)):
                return Refusal("layout", f"strides {given}, not {wanted}")
        for answer, value in zip(self.answers, self._facts(key), strict=True):
            if _outcome(value) != answer.outcome:
                kind = "predicate" if answer.fact in self.recording.predicates else "requirement"
                kind = "invariant" if answer.fact in self.recording.facts else kind
                return Refusal(kind, self.recording.text(answer.fact))
        lying_otherwise: list[NodeRecord] = []
        for place, (node, evaluate, assumed) in enumerate(self.nodes):
            outcomes = tuple(map(_outcome, evaluate(key)))
            if outcomes == assumed:
                continue
            index = self.first_like(place)
            if self._is_on_a_path(index, key):
                continue
            verdicts = self._verdicts.setdefault(index, {})
            asked = self._asked(node.decisions, key)
            if asked not in verdicts:
                verdicts[asked] = self._verify(index, outcomes, [node], self.binding(key))
            difference = verdicts[asked]
            if difference is None:
                continue
            lying_otherwise.append(node)
            strict = node.chooses_otherwise(self.binding(key))
            if not unseen.may_be(self.recording, node, difference, strict=strict):
                return Refusal("class", str(difference))
        if lying_otherwise and not self._are_unseen(lying_otherwise, key):
            return Refusal("class", "a value lies in memory otherwise than captured, and it shows")
        outcomes = tuple(map(_outcome, self._aot(key)))
        if outcomes != self._aot_assumed and not self._is_on_a_path(AOT, key):
            asked = self._asked(self.recording.aot_decisions, key)
            if asked not in self._aot_verdicts:
                self._aot_verdicts[asked] = self._verify(AOT, outcomes, self.recording.aten, self.binding(key))
            difference = self._aot_verdicts[asked]
            if difference is not None:
                return Refusal("class", str(difference))
        return None

    def first_like(self, place: int) -> int:
        """The first node that is the same call and asked the same: what is verified of it holds of the others."""
        if place not in self._first_like:
            node, _, assumed = self.nodes[place]
            alike = place if node.choices else (verify.identity(node), tuple(node.decisions), assumed)
            self._first_like[place] = self._first.setdefault(alike, place)
        return self._first_like[place]

    def _is_on_a_path(self, index: int, key: tuple[int, ...]) -> bool:
        """Whether what was verified once was verified for all sizes that answer as these do."""
        return any(all(holds(key)) for _, holds in self.paths.get(index, ()))

    def _verify(
        self, index: int, outcomes: tuple[Any, ...], nodes: Sequence[NodeRecord], binding: Mapping[Any, Any]
    ) -> verify.Difference | None:
        """Whether nodes hold at some sizes and, told once for each set of outcomes, for which others they then do."""
        began = time.perf_counter()
        numbers = {s for s, r in self.recording.symbols.items() if r.kind == "number"}  # they may be negative
        sizes = {symbol: value for symbol, value in binding.items() if symbol not in numbers}
        facts: dict[sympy.Basic, None] = {}
        told = (index, outcomes) not in self._followed
        self._followed.add((index, outcomes))
        mode = concrete.exact_mode()
        try:
            for node in verify.distinct(nodes):
                strict = index != AOT and node.chooses_otherwise(binding)
                found = verify.path(node, sizes) if told and not strict else None
                told = found is not None
                facts.update(dict.fromkeys(found or ()))
                difference = None if told else verify.differs(node, binding, strict=strict, mode=mode)
                if difference is not None:
                    return difference
        finally:
            self.verify_seconds += time.perf_counter() - began
        if told and all(fact.free_symbols <= self.places.keys() for fact in facts):
            self.paths.setdefault(index, []).append((list(facts), python_code.function(list(facts), self.places)))
        self.classes += 1
        return None

    def _are_unseen(self, nodes: list[NodeRecord], key: tuple[int, ...]) -> bool:
        """Whether it shows nowhere that these nodes give other strides: told once for all sizes that answer alike."""
        places = tuple(node.step for node in nodes)
        if any(known == places and all(facts(key)) for known, facts in self._unseen):
            return True
        binding = self.binding(key)
        if not unseen.holds(self.recording, nodes, binding):
            return False
        self.classes += 1
        numbers = {s for s, r in self.recording.symbols.items() if r.kind == "number"}
        found = unseen.path(self.recording, nodes, {s: v for s, v in binding.items() if s not in numbers})
        if found is not None and all(fact.free_symbols <= self.places.keys() for fact in found):
            self._unseen.append((places, python_code.function(found, self.places)))
        return True

    def _asked(self, decisions: Mapping[sympy.Basic, Answer], key: tuple[int, ...]) -> tuple[int, ...]:
        """The sizes that decisions are about.

        Where an outcome is not the capture's own, the way that was not taken may ask more: what was verified there
        holds for these very sizes, and not for others with the same outcomes.
        """
        symbols: set[sympy.Basic] = set().union(*(e.free_symbols for e in decisions))
        places = sorted(self.places[s] for s in symbols)
        return tuple(key[int(p[2:-1])] for p in places if p.startswith("v["))

    def binding(self, key: tuple[int, ...]) -> dict[sympy.Basic, sympy.Basic]:
        """The value of every symbol at `key`."""
        values: dict[sympy.Basic, sympy.Basic] = dict(self.recording.hints)
        for symbol, place in self.places.items():
            if place.startswith("v["):
                values[symbol] = sympy.sympify(key[int(place[2:-1])])
        return values


def _outcome(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _offset_text(source: str) -> str:
    return describe_source(source) + ".storage_offset()"
