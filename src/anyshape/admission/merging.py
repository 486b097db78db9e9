"""Merging behaviors: two aten graphs compared under facts about sizes, so that one program serves both.

Owns when a program that exists computes, for sizes that one of its predicates shuts out, what the function does there.
Two aten graphs are read side by side under what is known of those sizes: a tensor is its elements in their order, and
views and copies that leave them alone are no calls. Where what is left is the same, so is what the graphs compute.

What is said of sizes is a list of facts about the older program's symbols; nothing is compared at the sizes at hand
alone, so that the facts are enough for every size for which they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import sympy

from anyshape._torch.fake_runs import concrete
from anyshape._torch.graphs.aten_graphs import AtenGraph, AtenStep
from anyshape.assumptions.answers import Answer, Ref
from anyshape.assumptions.recording import Recording
from anyshape.ops import settled

SizesAt: TypeAlias = Mapping[sympy.Basic, sympy.Basic]  # of one call


class _Differs(Exception):
    """The graphs are not the same, or it cannot be told that they are."""


class _Elements(NamedTuple):
    """A tensor by what it holds: equal numbers are equal elements in the same order."""

    number: int
    sizes: tuple[sympy.Basic, ...]


def joins(
    older: Recording, graph: AtenGraph, newer: Recording, other: AtenGraph, sizes: SizesAt
) -> list[sympy.Basic] | None:
    """Facts under which `graph` computes what `other` does; None if there are none, or they cannot be told.

    They say of the newer what `conditions` says; `sizes` are some that it holds for.
    """
    if older.errors != newer.errors or not (_is_plain(older) and _is_plain(newer)) or graph.outputs != other.outputs:
        return None
    numbers: dict[Any, int] = {}
    try:
        names, facts = _names(older, newer), renamed(older, newer, list(conditions(newer, sizes)))
        if facts is None:
            return None
        facts += _met_bounds(older, facts)
        known = _known(facts)
        ours = _Reading(numbers, _renaming(older, {}, known)).of(graph)
        theirs = _Reading(numbers, _renaming(older, names, known)).of(other)
        if not ours.agrees(theirs):
            return None
    except (_Differs, ArithmeticError, LookupError, TypeError, AttributeError):  # or a form that cannot be read
        return None
    return narrowed(facts, [])


def _names(older: Recording, newer: Recording) -> dict[sympy.Basic, sympy.Basic]:
    own = {record.text: symbol for symbol, record in older.symbols.items()}
    return {s: own[record.text] for s, record in newer.symbols.items() if record.text in own}


def renamed(older: Recording, newer: Recording, facts: Sequence[sympy.Basic]) -> list[sympy.Basic] | None:
    """What is said of the sizes of the newer, of those of the older; None where that has no such sizes."""
    found = [fact.xreplace(_names(older, newer)) for fact in facts]
    return found if all(fact.free_symbols <= older.symbols.keys() for fact in found) else None


def sizes_of(older: Recording, newer: Recording, sizes: SizesAt) -> dict[sympy.Basic, sympy.Basic]:
    """The sizes that `newer` has, by the symbols of `older`."""
    given = {record.text: sizes[symbol] for symbol, record in newer.symbols.items()}
    return {s: given[record.text] for s, record in older.symbols.items() if record.text in given}


def narrowed(facts: Sequence[sympy.Basic], more: Sequence[sympy.Basic]) -> list[sympy.Basic] | None:
    """All of these, without those that follow; None if they contradict each other."""
    known = _known([*facts, *more])
    rest = [_put(fact, known) for fact in (*facts, *more)]
    kept = [sympy.Eq(symbol, value) for symbol, value in known.items()]
    return None if sympy.false in rest else list(dict.fromkeys([*kept, *(f for f in rest if f != sympy.true)]))


def conditions(recording: Recording, sizes: SizesAt) -> Iterator[sympy.Basic]:
    """What holds wherever a capture holds as at these sizes: a fact for each answer that it has there too.

    What holds where an answer is another one there is for `Admission.follow_otherwise` to tell.
    """
    for answers in (recording.predicates, recording.requirements, recording.facts):
        yield from (answer.fact for answer in answers.values())
    decided: list[tuple[Mapping[sympy.Basic, Answer], bool]] = [(n.decisions, n.contradictory) for n in recording.nodes]
    decided.append((recording.aot_decisions, recording.aot_contradictory))
    for decisions, contradictory in decided:
        if not contradictory and all(a.holds(sizes) for a in decisions.values()):
            yield from (answer.fact for answer in decisions.values())


def _renaming(
    recording: Recording, names: Mapping[sympy.Basic, sympy.Basic], known: Mapping[sympy.Basic, sympy.Basic]
) -> Callable[[sympy.Basic], sympy.Basic]:
    def rename(expr: sympy.Basic) -> sympy.Basic:
        renamed = expr.xreplace(names).xreplace(known)
        if not renamed.free_symbols <= recording.symbols.keys():
            raise _Differs(f"{expr} is not a size of both")
        return renamed

    return rename


def _is_plain(recording: Recording) -> bool:
    """Whether nothing is special about how a program is called, and what it leaves behind."""
    special = recording.oblivious.symbols or recording.loose_strides or recording.out_calls or recording.graph_breaks
    written = recording.apart is not None and any(recording.apart[:1])
    of_data = recording.asserted or recording.insisting
    return not (special or written or of_data or recording.reads_strides or recording.raised)


def _known(facts: Sequence[sympy.Basic]) -> dict[sympy.Basic, sympy.Basic]:
    """The sizes that are numbers."""
    found: dict[sympy.Basic, sympy.Basic] = {}
    for fact in facts:
        if isinstance(fact, sympy.Eq):
            symbol, number = fact.args if fact.lhs.is_Symbol else reversed(fact.args)
            if symbol.is_Symbol and number.is_Integer:
                found[symbol] = number
    return found


def _put(fact: sympy.Basic, values: Mapping[sympy.Basic, sympy.Basic]) -> sympy.Basic:
    """A fact for some sizes; one that has no answer there, since it divides by 0, is none."""
    try:
        return fact.xreplace(values)
    except ZeroDivisionError:
        return sympy.false


# Of tensors with the same elements in other places it gives others.
_READ_MEMORY = ("aten.as_strided",)


def _met_bounds(recording: Recording, facts: Sequence[sympy.Basic]) -> list[sympy.Basic]:
    """`n <= 1` and `n != 0` make 1 of a size."""
    found: list[sympy.Basic] = []
    for fact in facts:
        symbol = fact.args[0] if isinstance(fact, (sympy.Le, sympy.Lt)) else None
        if symbol is None or not symbol.is_Symbol or fact.args[1] not in (0, 1, 2):
            continue
        alone = [f for f in facts if f.free_symbols == {symbol}]
        left = [n for n in (0, 1) if not any(_put(f, {symbol: sympy.Integer(n)}) == sympy.false for f in alone)]
        if recording.symbols[symbol].kind == "size" and len(left) == 1:
            found.append(sympy.Eq(symbol, left[0]))
    return found


class _Read(NamedTuple):
    """A graph as it was read."""

    outputs: tuple[Any, ...]
    effects: tuple[Any, ...]  # of calls that do more than to compute, in their order
    inputs: Mapping[str, Any]

    def agrees(self, newer: _Read) -> bool:
        """Whether the newer graph gets the same, does the same and gives the same."""
        known = newer.inputs.items() <= self.inputs.items()
        return known and self.outputs == newer.outputs and self.effects == newer.effects


class _Reading:
    """Reads a graph; equal calls get equal numbers, in whichever graph they are."""

    def __init__(self, numbers: dict[Any, int], rename: Callable[[sympy.Basic], sympy.Basic]) -> None:
        self._numbers = numbers
        self._rename = rename
        self._values: list[Any] = []
        self._effects: list[Any] = []
        self._inputs: dict[str, Any] = {}
        self._outputs: tuple[Any, ...] = ()
        self._steps: Sequence[AtenStep] = ()

    def of(self, graph: AtenGraph) -> _Read:
        self._steps = graph.steps
        for step in graph.steps:
            self._values.append(self._read(step))
        return _Read(self._outputs, tuple(self._effects), self._inputs)

    def _read(self, step: AtenStep) -> Any:
        if step.kind == "output":
            given = step.args["values"]
            values = given if isinstance(given, (tuple, list)) else (given,)
            self._outputs = (*map(self._output, values), self._sharing(values))
            return None
        if step.kind == "number":
            return self._plain(step.result)
        if step.kind == "input":
            return self._input(step)
        if step.kind == "part":
            return self._values[step.args["of"].index][step.args["index"]]
        sizes = _VIEWS.get(step.name)
        if sizes is not None:
            same = sizes(step.args, self._sizes, self._plain)
            if same is not None:
                if same != self._result_sizes(step.result):
                    raise _Differs(step.name)  # the capture took it for something else
                return _Elements(self._given(step).number, same)
        return self._call(step)

    def _input(self, step: AtenStep) -> Any:
        if not isinstance(step.result, concrete.TensorSnapshot):
            return self._plain(step.result)
        self._inputs[step.name] = self._layout(step.result)
        return self._numbered(("input", step.name), step.result)

    def _call(self, step: AtenStep) -> Any:
        if step.name.startswith(_READ_MEMORY):
            raise _Differs(step.name)
        rule = settled.RULES.get(step.name)
        args = step.args if rule is None else rule(step.args, lambda name: self._sizes_of(step.args[name]))
        given = tuple((name, self._plain(value)) for name, value in args.items())
        key: tuple[Any, ...] = (step.kind, step.name, given)
        if not step.pure:
            self._effects.append(key)
            key = (*key, len(self._effects))
        if isinstance(step.result, (tuple, list)):
            return [self._numbered((*key, i), result) for i, result in enumerate(step.result)]
        return self._numbered(key, step.result)

    def _numbered(self, key: Any, result: Any) -> Any:
        """What a call gives: the same for the same call with results of the same sizes."""
        if not isinstance(result, concrete.TensorSnapshot):
            if result is not None and not isinstance(result, concrete.ScalarSnapshot):
                raise _Differs(str(key))
            number = self._numbers.setdefault((key, None), len(self._numbers))
            return ("result", number)
        sizes = self._result_sizes(result)
        made = (key, sizes, result.dtype, result.device, result.conj, result.negated)
        return _Elements(self._numbers.setdefault(made, len(self._numbers)), sizes)

    def _output(self, value: Any) -> Any:
        if not isinstance(value, Ref):
            return self._plain(value)
        result = self._steps[value.index].result
        if not isinstance(result, concrete.TensorSnapshot):
            return self._values[value.index]
        return self._values[value.index], self._layout(result)

    def _sharing(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """For each output the input, or the first output, whose memory it has: what writes to the one may show."""
        first: dict[int, Any] = {}
        for step in self._steps:
            if step.kind == "input" and isinstance(step.result, concrete.TensorSnapshot):
                first.setdefault(step.result.storage, step.name)
        given = [self._steps[v.index].result if isinstance(v, Ref) else None for v in values]
        memory = [r.storage if isinstance(r, concrete.TensorSnapshot) else None for r in given]
        return tuple(None if m is None else first.setdefault(m, n) for n, m in enumerate(memory))

    def _layout(self, tensor: concrete.TensorSnapshot) -> Any:
        """Sizes, and the strides that address anything."""
        sizes = self._result_sizes(tensor)
        strides = [None if n == 1 else self._rename(s) for n, s in zip(sizes, tensor.strides, strict=True)]
        return sizes, tuple(strides) if 0 not in sizes else (), tensor.dtype, tensor.device

    def _result_sizes(self, result: Any) -> tuple[sympy.Basic, ...]:
        return tuple(self._rename(s) for s in result.sizes)

    def _given(self, step: AtenStep) -> _Elements:
        value = self._plain(next(iter(step.args.values())))
        if not isinstance(value, _Elements):
            raise _Differs(step.name)
        return value

    def _sizes_of(self, value: Any) -> tuple[sympy.Basic, ...] | None:
        plain = self._plain(value)
        return plain.sizes if isinstance(plain, _Elements) else None

    def _sizes(self, args: Mapping[str, Any]) -> tuple[sympy.Basic, ...]:
        """Those of the first argument."""
        found = self._sizes_of(next(iter(args.values())))
        if found is None:
            raise _Differs("no tensor")
        return found

    def _plain(self, value: Any) -> Any:
        """An argument, so that equal ones are equal and can be looked up."""
        if isinstance(value, Ref):
            return self._values[value.index]
        if isinstance(value, concrete.ScalarSnapshot):
            return self._rename(value.expr)
        if isinstance(value, concrete.TensorSnapshot):
            raise _Differs("a tensor from nowhere")
        if isinstance(value, (tuple, list)):
            return tuple(self._plain(v) for v in value)
        if type(value) is int:
            return sympy.Integer(value)
        return type(value).__name__, repr(value)


# -- calls that leave the elements alone --------------------------------------------------------------------------
# Each gives the sizes of the result if all elements are there in the same order, and None if they may not be.

Sizes: TypeAlias = tuple[sympy.Basic, ...]
_Args: TypeAlias = Mapping[str, Any]


def _resized(args: _Args, sizes: Callable[[_Args], Sizes], plain: Callable[[Any], Any]) -> Sizes | None:
    wanted: Sizes = plain(args["size"])
    before = sizes(args)
    if -1 in wanted:
        others = [n for n in wanted if n != -1]
        left = sympy.Mul(*before) / sympy.Mul(*others) if 0 not in others else sympy.nan
        if len(others) != len(wanted) - 1 or sympy.denom(left) != 1 or left is sympy.nan:
            return None
        wanted = tuple(left if n == -1 else n for n in wanted)
    return wanted if sympy.expand(sympy.Mul(*wanted) - sympy.Mul(*before)) == 0 else None


def _as_it_is(args: _Args, sizes: Callable[[_Args], Sizes], plain: Callable[[Any], Any]) -> Sizes | None:
    return sizes(args)


def _expanded(args: _Args, sizes: Callable[[_Args], Sizes], plain: Callable[[Any], Any]) -> Sizes | None:
    before, wanted = sizes(args), plain(args["size"])
    missing = len(wanted) - len(before)
    after = tuple(before[i - missing] if n == -1 and i >= missing else n for i, n in enumerate(wanted))
    return after if _beyond_one(before) == _beyond_one(after) else None


def _permuted(args: _Args, sizes: Callable[[_Args], Sizes], plain: Callable[[Any], Any]) -> Sizes | None:
    before = sizes(args)
    order = list(range(len(before)))
    if "dims" in args:
        order = [int(d) % len(before) for d in plain(args["dims"])]
    elif "dim0" in args:
        a, b = int(plain(args["dim0"])) % len(before), int(plain(args["dim1"])) % len(before)
        order[a], order[b] = order[b], order[a]
    else:
        order.reverse()
    moved = [d for d in order if before[d] != 1]
    return tuple(before[d] for d in order) if moved == sorted(moved) else None


def _unsqueezed(args: _Args, sizes: Callable[[_Args], Sizes], plain: Callable[[Any], Any]) -> Sizes | None:
    before, dim = sizes(args), int(plain(args["dim"]))
    dim %= len(before) + 1
    return (*before[:dim], sympy.Integer(1), *before[dim:])


def _squeezed(args: _Args, sizes: Callable[[_Args], Sizes], plain: Callable[[Any], Any]) -> Sizes | None:
    before, given = sizes(args), plain(args["dim"])
    dims = {int(d) % len(before) for d in (given if isinstance(given, tuple) else (given,))}
    if not all(before[d].is_Integer for d in dims):
        return None
    return tuple(n for d, n in enumerate(before) if d not in dims or n != 1)


def _sliced(args: _Args, sizes: Callable[[_Args], Sizes], plain: Callable[[Any], Any]) -> Sizes | None:
    before, dim = sizes(args), int(plain(args["dim"]))
    start, end = args["start"], plain(args["end"])
    from_the_first = start is None or plain(start) == 0
    to_the_last = args["end"] is None or end == before[dim] or (end.is_Integer and int(end) >= 2**63 - 1)
    return before if from_the_first and to_the_last and plain(args["step"]) == 1 else None


def _selected(args: _Args, sizes: Callable[[_Args], Sizes], plain: Callable[[Any], Any]) -> Sizes | None:
    before, dim = sizes(args), int(plain(args["dim"]))
    dim %= len(before)
    return (*before[:dim], *before[dim + 1 :]) if before[dim] == 1 and plain(args["index"]) in (0, -1) else None


def _beyond_one(sizes: Sizes) -> list[sympy.Basic]:
    return [n for n in sizes if n != 1]


_VIEWS: Mapping[str, Callable[..., Sizes | None]] = {
    "aten.view.default": _resized,
    "aten._unsafe_view.default": _resized,
    "aten.clone.default": _as_it_is,
    "aten.alias.default": _as_it_is,
    "aten.detach.default": _as_it_is,
    "aten.expand.default": _expanded,
    "aten.permute.default": _permuted,
    "aten.transpose.int": _permuted,
    "aten.t.default": _permuted,
    "aten.unsqueeze.default": _unsqueezed,
    "aten.squeeze.dim": _squeezed,
    "aten.squeeze.dims": _squeezed,
    "aten.slice.Tensor": _sliced,
    "aten.select.int": _selected,
}
