"""The admission of a program: the key of a call, the hot lookup, what is learned of sizes that are new.

Owns the key of a call, the classes a program admits, and the lookup on the hot path. Knows recordings and the verifier;
how a program was captured or compiled is not its business.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sympy

from anyshape._torch.fake_runs import concrete, verify
from anyshape._torch.symbolic import python_code
from anyshape.admission import admission_code, likely_sizes, unobservable_strides
from anyshape.admission.local_classes import Kind, Kinds, LocalClass
from anyshape.assumptions.answers import Answer, InputRecord, NodeRecord
from anyshape.assumptions.recording import Recording
from anyshape.assumptions.stride_order import like_channels_last
from anyshape.assumptions.wording import describe_source
from anyshape.foundation import interrupts, limits
from anyshape.foundation.call_keys import ADMITTED, UNTOLD, key_function

MOST_COMPARED = 64  # keys that are tried when a program may have made another one needless
MOST_NUMBERS = 4_000_000  # in the keys that a program remembers


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
        if not unobservable_strides.may_be(recording, node, difference, strict=strict):
            _blame(recording, node.decisions.values(), sizes)
            return False
    if lying_otherwise and not unobservable_strides.holds(recording, lying_otherwise, sizes):
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


@dataclasses.dataclass(frozen=True)
class Unit:
    """A node of a program: what it assumed, and what is known of its kind for other sizes."""

    node: NodeRecord
    assumed: tuple[Answer, ...]  # of an aten node nothing: who asked among them is not told
    kind: Kind
    symbols: tuple[sympy.Basic, ...]  # its own, in the order of the kind's


class Admission:
    """The sizes a program serves: those whose answers are the capture's own, and those verified since.

    An instance is called with the program's inputs, as a guard, and says whether they belong to it. Sizes that were
    never seen are judged by generated code; only where that cannot tell are nodes run, each once for all sizes that
    answer its questions alike.
    """

    def __init__(self, recording: Recording, inputs: Sequence[InputRecord]) -> None:
        self.recording = recording
        self.inputs = tuple(inputs)
        self.known: dict[tuple[int, ...], bool] = {}
        self.verify_seconds = 0.0
        self.joined: dict[sympy.Basic, list[tuple[sympy.Basic, ...]]] = {}  # where a predicate makes no difference
        self.unobservable: list[tuple[int, tuple[sympy.Basic, ...]]] = []  # nodes that may give other strides, by bits
        self._lock = threading.RLock()
        self._learnt = 0  # classes, of all kinds
        self._compiled = -1  # how many of them the generated code knows
        self._evaluate: Callable[[Sequence[int]], int] | None = None
        self._looked_ahead = False
        self._refused: tuple[int, ...] | None = None
        self.places: dict[sympy.Symbol, str] = {}
        self._build()
        width = sum(2 * len(i.sizes) + 1 for i in self.inputs)
        self._most_keys = max(1, min(limits.keys(), MOST_NUMBERS // max(1, width)))

    @property
    def guard(self) -> str:
        """The text of the call that the guard makes."""
        return ", ".join(i.source for i in self.inputs)

    def __call__(self, *values: Any) -> bool:
        key = self._key(values)
        verdict = self.known.get(key)
        if verdict is None:
            verdict = self._judge(key)
        if not verdict:
            self._refused = key
        return verdict

    @property
    def last(self) -> Refusal | None:
        """Why the latest call that was refused was refused."""
        return None if self._refused is None else self.refuses(self._refused)

    @property
    def classes(self) -> int:
        """Sets of sizes that answer alike, and are served: the capture's own and those verified since."""
        return 1 + len(self.unobservable) + sum(c.difference is None for k in self._kinds for c in k.classes)

    @property
    def verifications(self) -> int:
        """Nodes that were run on fake tensors since the capture."""
        return sum(kind.runs for kind in self._kinds)

    @property
    def untold(self) -> tuple[str, ...]:
        """Nodes that have to be run for each new size that answers otherwise, and why."""
        units = {id(u.kind): u for u in (*self.units, *self.aten_units) if u.kind.untold}
        return tuple(f"{u.node.name} at {u.node.where or '?'}: {u.kind.untold}" for u in units.values())

    @property
    def admits_all(self) -> bool:
        """Whether nothing is asked of a call: no answer, no class, no stride that has to be some expression."""
        recording = self.recording
        own = [stride in recording.loose_strides for i in self.inputs for stride in i.strides]
        return all(own) and not (self.answers or self.units or recording.aot_decisions)

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
        asked = (s for s, at in self._at.items() if at is not None and s in self.recording.symbols)
        offsets = {r.text: r.symbol for r in map(self.recording.symbols.__getitem__, asked) if r.kind == "offset"}
        for record in self.inputs:
            offset = offsets.get(_offset_text(record.source))
            parts = [*record.sizes, *(record.strides if record.kind == "tensor" else ()), *([offset] if offset else ())]
            key += [part.xreplace(values) for part in parts]
        if all(value.is_Integer for value in key):
            self.known[tuple(map(int, key))] = True

    def join(self, predicate: sympy.Basic, facts: Sequence[sympy.Basic]) -> None:
        """Where `facts` hold the program does what it should although `predicate` does not hold."""
        with self._lock:
            self.joined.setdefault(predicate, []).append(tuple(facts))
            self._learnt += 1
            self._evaluate = None
            self.known = {key: True for key, admitted in self.known.items() if admitted}

    def follow_all(self, sizes: Mapping[sympy.Basic, sympy.Basic]) -> list[sympy.Basic] | None:
        """Facts at `sizes` under which all calls of the aten graph are as traced; None if they are not.

        It is asked where a predicate does not hold, which was relied on silently: so all nodes count.
        """
        return self._follow(self.aten_units, sizes)

    def follow_otherwise(self, sizes: Mapping[sympy.Basic, sympy.Basic]) -> list[sympy.Basic] | None:
        """Facts at `sizes` under which the nodes hold that answer otherwise there than at capture."""
        units = [u for u in self.units if u.node.contradictory or not all(a.holds(sizes) for a in u.assumed)]
        answers = self.recording.aot_decisions.values()
        if self.recording.aot_contradictory or not all(a.holds(sizes) for a in answers):
            units += self.aten_units
        return self._follow(units, sizes)

    def _follow(self, units: Iterable[Unit], sizes: Mapping[sympy.Basic, sympy.Basic]) -> list[sympy.Basic] | None:
        facts: dict[sympy.Basic, None] = {}
        with self._lock:
            for unit in units:
                if not all(symbol in sizes for symbol in unit.symbols):
                    return None
                values = tuple(_plain(sizes[symbol]) for symbol in unit.symbols)
                local = unit.kind.known(values) or unit.kind.learn(values)
                if local.difference is not None and not (unit.assumed and self.may_be_unobservable(unit, local)):
                    return None
                names = dict(zip(unit.kind.symbols, unit.symbols, strict=True))
                told = local.difference is None and local in unit.kind.classes
                own = [f.xreplace(names) for f in local.facts] if told else map(sympy.Eq, unit.symbols, values)
                facts.update(dict.fromkeys(own))
        return list(facts)

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
        by_text = {r.text: s for s, r in recording.symbols.items() if r.kind == "size"}
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
        for symbol in recording.symbols.keys() - self.places.keys():
            self.places[symbol] = str(recording.hints[symbol])
        for symbol in used - self.places.keys():
            self.places[symbol] = str(recording.hints[symbol])
        self._at = {s: int(p[2:-1]) if p.startswith("v[") else None for s, p in self.places.items()}
        self.layout = layout
        self.convolves = any("conv" in node.name for node in recording.nodes)
        self._kinds = Kinds({s: r.kind for s, r in recording.symbols.items()})
        asking = (node for node in recording.nodes if node.decisions)
        self.units = [Unit(node, tuple(node.decisions.values()), *self._kinds.of(node)) for node in asking]
        self._writer = admission_code.Writer(self, live=True)

    @functools.cached_property
    def aten_units(self) -> list[Unit]:
        """The calls that AOTAutograd made; looked at where it was told something that is not so at other sizes."""
        return [Unit(node, (), *self._kinds.of(node)) for node in verify.distinct(self.recording.aten)]

    @functools.cached_property
    def _functions(self) -> dict[str, Any]:
        """What the slow path evaluates."""
        function = functools.partial(python_code.function, names=self.places)
        return {
            "strides": function([s for _, _, strides in self.layout for s in strides]),
            "answers": function([a.expr for a in self.answers]),
            "aten": function(list(self.recording.aot_decisions)),
            "units": [function([a.expr for a in unit.assumed]) for unit in self.units],
        }

    def _place(self, expr: sympy.Basic, index: int) -> None:
        if expr.is_Symbol and expr not in self.places:
            self.places[expr] = f"v[{index}]"

    def needs_elements(self, strides: Sequence[sympy.Expr]) -> bool:
        return _needs_elements(self.recording, strides)

    # -- sizes that were not seen --------------------------------------------------------------------------------

    def _judge(self, key: tuple[int, ...]) -> bool:
        told = UNTOLD
        if self._evaluate is not None:
            with contextlib.suppress(ArithmeticError):  # a question that has no answer here
                told = self._evaluate(key)
        if told == UNTOLD:
            return self._learn(key)
        return self._remember(key, told == ADMITTED)

    def _remember(self, key: tuple[int, ...], verdict: bool) -> bool:
        if len(self.known) >= self._most_keys:  # what was learnt of nodes stays
            self.known.clear()
        self.known[key] = verdict
        return verdict

    def _learn(self, key: tuple[int, ...]) -> bool:
        with self._lock:
            verdict = self.known.get(key)
            if verdict is None:
                before = self._learnt
                try:
                    verdict = self.refuses(key) is None
                except BaseException as error:  # a guard must not raise; what cannot be told is not admitted
                    interrupts.pass_on(error)
                    verdict = False
                if verdict and not self._looked_ahead:
                    self._learn_likely_sizes(key)
                # Where no node had to be run, code would have told.
                if self._learnt == before and self._compiled < self._learnt:
                    self._evaluate, self._compiled = admission_code.compiled(self, self._writer), self._learnt
                self._remember(key, verdict)
            return verdict

    def _learn_likely_sizes(self, key: tuple[int, ...]) -> None:
        """Judge sizes that no call had yet: the first one that has them is then like any other."""
        self._looked_ahead = True
        untold = [kind.untold for kind in self._kinds]
        seen = [*(k for k, admitted in self.known.items() if admitted), key]
        at = (self._at.get(s) for s, record in self.recording.symbols.items() if record.kind == "size")
        sizes = {place for place in at if place is not None}
        with concrete.quietly():
            for likely in likely_sizes.likely(seen, sizes):
                try:
                    _ = self._refuses_answers(likely) or self._refuses_nodes(likely) or self._refuses_aten(likely)
                except BaseException as error:  # nobody has asked
                    interrupts.pass_on(error)
        for kind, why in zip(self._kinds, untold, strict=False):
            kind.untold = why

    def refuses(self, key: tuple[int, ...]) -> Refusal | None:
        """Why these sizes are not served, or None: what the generated code says, and what it cannot tell is learnt."""
        with self._lock:
            return (
                self._refuses_layout(key)
                or self._refuses_answers(key)
                or self._refuses_nodes(key)
                or self._refuses_aten(key)
            )

    def _refuses_layout(self, key: tuple[int, ...]) -> Refusal | None:
        strides = iter(self._functions["strides"](key))
        for start, dims, expressions in self.layout:
            sizes = key[start : start + dims]
            given, wanted = key[start + dims : start + 2 * dims], tuple(next(strides) for _ in expressions)
            if 0 in sizes and self.needs_elements(expressions):
                return Refusal("layout", "strides of a tensor without elements, which are read")
            if 0 in sizes or given == wanted:
                continue
            address = any(n > 1 and a != b for n, a, b in zip(sizes, given, wanted, strict=True))
            seen = dims > 2 or self.convolves  # to a convolution a matrix is a signal without a batch
            if address or (seen and like_channels_last(sizes, given) != like_channels_last(sizes, wanted)):
                return Refusal("layout", f"strides {given}, not {wanted}")
        return None

    def _refuses_answers(self, key: tuple[int, ...]) -> Refusal | None:
        for answer, value in zip(self.answers, self._functions["answers"](key), strict=True):
            if _outcome(value) == answer.outcome:
                continue
            binding = self.binding(key)
            if any(all(f.xreplace(binding) == sympy.true for f in w) for w in self.joined.get(answer.fact, ())):
                continue
            kind = "predicate" if answer.fact in self.recording.predicates else "requirement"
            kind = "invariant" if answer.fact in self.recording.facts else kind
            return Refusal(kind, self.recording.text(answer.fact))
        return None

    def _refuses_nodes(self, key: tuple[int, ...]) -> Refusal | None:
        bits = 0
        for number, (unit, outcomes) in enumerate(zip(self.units, self._functions["units"], strict=True)):
            if all(_outcome(v) == a.outcome for v, a in zip(outcomes(key), unit.assumed, strict=True)):
                continue
            local = self._class_of(unit, key)
            if local.difference is None:
                continue
            if not self.may_be_unobservable(unit, local):
                return Refusal("class", str(local.difference))
            bits |= 1 << number
        if bits and not self._is_unobservable(bits, key):
            return Refusal("class", "a value lies in memory otherwise than captured, and it shows")
        return None

    def _refuses_aten(self, key: tuple[int, ...]) -> Refusal | None:
        assumed = self.recording.aot_decisions.values()
        if all(_outcome(v) == a.outcome for v, a in zip(self._functions["aten"](key), assumed, strict=True)):
            return None
        for unit in self.aten_units:
            difference = self._class_of(unit, key).difference
            if difference is not None:
                return Refusal("class", str(difference))
        return None

    def _class_of(self, unit: Unit, key: tuple[int, ...]) -> LocalClass:
        """What is known of a node at these sizes; it is run if nothing is."""
        places = ((s, self._at[s]) for s in unit.symbols)
        values: tuple[Any, ...] = tuple(self.recording.hints[s] if at is None else key[at] for s, at in places)
        local = unit.kind.known(values)
        if local is None:
            began = time.perf_counter()
            local = unit.kind.learn(values)
            self._learnt += 1
            self.verify_seconds += time.perf_counter() - began
        return local

    def may_be_unobservable(self, unit: Unit, local: LocalClass) -> bool:
        """Whether a node that differs could be one of those whose strides nobody sees."""
        assert local.difference is not None
        return unobservable_strides.may_be(self.recording, unit.node, local.difference, strict=local.strict)

    def _is_unobservable(self, bits: int, key: tuple[int, ...]) -> bool:
        """Whether it shows nowhere that these nodes give other strides: told once for all sizes that answer alike."""
        binding = self.binding(key)
        for known, told in self.unobservable:
            if known == bits and all(fact.xreplace(binding) == sympy.true for fact in told):
                return True
        nodes = [unit.node for number, unit in enumerate(self.units) if bits >> number & 1]
        began = time.perf_counter()
        holds, facts = unobservable_strides.follow(self.recording, nodes, binding)
        self.verify_seconds += time.perf_counter() - began
        if holds and facts is not None and all(fact.free_symbols <= self.places.keys() for fact in facts):
            self.unobservable.append((bits, facts))
            self._learnt += 1
        return holds

    def binding(self, key: tuple[int, ...]) -> dict[sympy.Basic, sympy.Basic]:
        """The value of every symbol at `key`."""
        values: dict[sympy.Basic, sympy.Basic] = dict(self.recording.hints)
        values.update((symbol, sympy.sympify(key[at])) for symbol, at in self._at.items() if at is not None)
        return values


def _plain(value: sympy.Basic) -> int | float:
    return int(value) if value.is_Integer else float(value)


def _outcome(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _offset_text(source: str) -> str:
    return describe_source(source) + ".storage_offset()"
