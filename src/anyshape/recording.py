"""What one capture assumed about sizes.

Owns the answers: every question asked about a free size during a capture comes here, is answered, and is written down
as a decision, a predicate or a requirement. Knows sympy, not torch: the environment that asks and the file and line
that asked are handed in.

- A *decision* belongs to a node of the graph. Other sizes may answer it differently; the node's class is then
  verified.
- A *predicate* must hold for the program to be used at all (the user's `if n > 8`, an int that was baked in).
- A *requirement* is what the framework insisted on (`a.shape[1] == b.shape[0]`): where it fails eager would have
  raised.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import sympy

# Stand-ins for sizes 0 and 1 at a first capture, so that a program is captured as general as it can be whatever
# size came first. Whether it holds for the sizes that really came is then verified like any other class.
# Where 1 means a real broadcast its stand-in does not hold: then only 0 has one, and at last neither.
STAND_INS: tuple[dict[int, int], ...] = ({0: 36, 1: 48}, {0: 36}, {})


class Environment(Protocol):
    """The little that is needed of a shape environment."""

    def learn(self, fact: sympy.Basic, *, guard: bool) -> None: ...

    def settled(self, expr: sympy.Basic) -> sympy.Basic | None: ...

    def settled_from_two(self, expr: sympy.Basic) -> sympy.Basic | None: ...


@dataclasses.dataclass(frozen=True)
class SymbolRecord:
    """A free size, stride, offset or int argument."""

    symbol: sympy.Symbol
    text: str  # as a user would write it: x.shape[0]
    kind: str  # size | stride | offset | number
    actual: int | float
    hint: int | float


@dataclasses.dataclass(frozen=True)
class InputRecord:
    """A graph input as guards see it: how to reach it, and the expressions its sizes and strides were given."""

    kind: str  # tensor | number
    source: str
    sizes: tuple[sympy.Expr, ...]
    strides: tuple[sympy.Expr, ...]


@dataclasses.dataclass(frozen=True)
class Answer:
    """A question about sizes and the outcome a program was built on."""

    expr: sympy.Basic
    outcome: bool
    asked_by: str  # user | framework
    where: str  # file:line

    @property
    def fact(self) -> sympy.Basic:
        return self.expr if self.outcome else sympy.Not(self.expr)

    def holds(self, sizes: Mapping[sympy.Basic, sympy.Basic]) -> bool:
        """Whether the question has this outcome at `sizes`."""
        try:
            return bool(self.expr.xreplace(sizes) == sympy.sympify(self.outcome))
        except (ZeroDivisionError, AssertionError):  # `n % 0` has no answer
            return False


@dataclasses.dataclass
class NodeRecord:
    """A node of the captured graph, what it asked, and enough of it to run it again at other sizes."""

    call: Any  # a function, or the name of a method
    args: Any = None
    kwargs: Any = None
    result: Any = None
    context: Any = None
    opaque: bool = False  # cannot be run again: a differing outcome refuses the class
    scalars: frozenset[sympy.Basic] = frozenset()  # expressions that are arguments themselves
    decisions: dict[sympy.Basic, Answer] = dataclasses.field(default_factory=dict)
    choices: set[sympy.Basic] = dataclasses.field(default_factory=set)  # decisions between ways, beyond 0 and 1
    log: Any = None  # the aten calls it came down to
    sharing_shows: bool = True  # whether anyone can see which memory its results share
    contradictory: bool = False  # a question got its general answer once, and the true one another time

    def forget(self) -> None:
        """Nothing has been asked yet."""
        self.decisions.clear()
        self.choices.clear()
        self.contradictory = False

    def settle(self, sizes: Mapping[sympy.Basic, sympy.Basic]) -> None:
        """Verified at `sizes`: where answers contradict one another, the outcomes there are the ones that hold."""
        if self.contradictory:
            for expr, answer in self.decisions.items():
                if not answer.holds(sizes):
                    self.decisions[expr] = dataclasses.replace(answer, outcome=not answer.outcome)

    def holds(self, sizes: Mapping[sympy.Basic, sympy.Basic]) -> bool:
        """Whether every decision has at `sizes` the outcome it was captured with."""
        return all(answer.holds(sizes) for answer in self.decisions.values())

    def chooses_otherwise(self, sizes: Mapping[sympy.Basic, sympy.Basic]) -> bool:
        return not all(self.decisions[expr].holds(sizes) for expr in self.choices)


class Recording:
    """The symbols, decisions, predicates and requirements of one capture."""

    def __init__(
        self,
        *,
        locate: Callable[[], tuple[str, str]],
        retrace: type[BaseException],
        stand_ins: Mapping[int, int] | None = None,
        exact: bool = False,
    ) -> None:
        self.env: Environment | None = None
        self.stand_ins = stand_ins or {}
        self.exact = exact  # the aten graph gets true answers where general ones do not hold
        self.substituted = False  # a size of 0 or 1 was replaced by a stand-in
        self.symbols: dict[sympy.Symbol, SymbolRecord] = {}
        self.hints: dict[sympy.Basic, sympy.Integer] = {}
        self.actuals: dict[sympy.Basic, sympy.Integer] = {}
        self.predicates: dict[sympy.Basic, Answer] = {}
        self.requirements: dict[sympy.Basic, Answer] = {}
        self.nodes: list[NodeRecord] = []
        self.node: NodeRecord | None = None
        self.silent = False
        self.differing = 0  # general answers at the current node that are not the truth for the hints
        self.phase = "trace"  # trace | aot | lowering
        self.aten: list[NodeRecord] = []
        self.aot_decisions: dict[sympy.Basic, Answer] = {}
        self.aot_contradictory = False
        self._truths: frozenset[sympy.Basic] | None = frozenset()
        self._asked: set[sympy.Basic] = set()
        self._insisted: set[sympy.Basic] = set()  # what was just required is not asked again
        self._choices: set[sympy.Basic] = set()  # of any node
        self._outcomes: dict[sympy.Basic, bool] = {}  # every decision's, for the backend to be told the same
        self.graph_breaks: list[str] = []
        self.apart: list[tuple[Any, Any]] = []  # sources of inputs whose memory must not be one
        self.on_finish: Callable[[Sequence[InputRecord]], str | None] = lambda inputs: None
        self.retrace: type[BaseException] = retrace
        self._locate = locate

    # -- symbols -----------------------------------------------------------------------------------------------

    def hint_for(self, source: Any, actual: int) -> int:
        if actual in self.stand_ins and _kind(source) == "size":
            self.substituted = True
            return self.stand_ins[actual]
        return actual

    def add_symbol(self, symbol: sympy.Symbol, source: Any, *, actual: int | float, hint: int | float) -> None:
        self.symbols[symbol] = SymbolRecord(symbol, describe_source(source.name), _kind(source), actual, hint)
        self.hints[symbol] = sympy.sympify(hint)
        self.actuals[symbol] = sympy.sympify(actual)

    def layout(
        self,
        sizes: Sequence[int],
        strides: Sequence[int],
        symbols: Sequence[sympy.Expr],
        free_stride: Callable[[int], sympy.Expr],
    ) -> list[sympy.Expr]:
        """Strides as expressions of the sizes where the layout is dense; what is neither dense nor expanded is free."""
        result: list[sympy.Expr | None] = [None] * len(sizes)
        empty = 0 in sizes
        # Dims in memory order; a dim of size 1 (or any dim of an empty tensor) addresses nothing and takes the place
        # that it has in a contiguous tensor.
        rank = lambda i: strides[i] if sizes[i] != 1 and not empty else None
        order = _memory_order(len(sizes), rank)
        expected, expression = 1, sympy.Integer(1)
        for i in order:
            stride = strides[i]
            if empty or sizes[i] == 1 or stride == expected:
                result[i] = expression
            elif stride == 0:
                result[i] = sympy.Integer(0)
                continue
            else:
                result[i] = free_stride(i)
                expected, expression = stride, result[i]
            expected = expected * max(sizes[i], 1)
            expression = expression * symbols[i]
        return [s for s in result if s is not None]

    # -- questions ---------------------------------------------------------------------------------------------

    def owns(self, expr: sympy.Basic) -> bool:
        """Whether a question is about free sizes alone."""
        symbols: set[Any] = getattr(expr, "free_symbols", set())
        return bool(symbols) and self.symbols.keys() >= symbols

    def truth(self, expr: sympy.Basic) -> sympy.Basic:
        try:
            return expr.xreplace(self.hints)
        except ZeroDivisionError:  # a question about `n // 0`, asked where n is 0
            return sympy.false

    def answer(self, expr: sympy.Basic, general: sympy.Basic | None) -> sympy.Basic:
        """Answer a question that what is known does not settle. `general` is the answer of a `guard_or_*` question."""
        truth = self.truth(expr)
        if self.silent:
            return truth
        if expr in self._insisted and truth == sympy.true:
            return truth
        boolean = truth in (sympy.true, sympy.false)
        if self.exact and self.phase == "aot" and truth != general:
            self._assume_truth(expr, truth)
            return truth
        if self.phase == "lowering":
            if general is not None and not self._must_be_known(expr):
                return general
            if boolean and general is None and expr in self._outcomes:
                return sympy.sympify(self._outcomes[expr])
            if boolean and self._is_about_units(expr, truth):
                return truth
            self._assume_truth(expr, truth)
            return truth
        if self.phase == "aot":
            if not boolean:
                self._assume(sympy.Eq(expr, truth), sympy.true)
                return truth
            if general is None and (
                self._is_about_numbers(expr)
                or self._takes_a_way_of_its_own(expr, truth)
                or not (expr in self._choices or self._is_about_units(expr))
            ):
                self._assume(expr, truth)
                return truth
            outcome = truth if general is None else general
            known = self.aot_decisions.setdefault(expr, Answer(expr, bool(outcome), "framework", ""))
            if known.outcome != bool(outcome):
                self.aot_contradictory = True
                self.aot_decisions[expr] = Answer(expr, bool(truth), "framework", "")
            self._outcomes[expr] = bool(outcome)
            return outcome
        if self.node is None:
            self._assume_truth(expr, truth)
            return truth
        if general is not None:
            if truth == general:
                self._decide(expr, general)
                return general
            self._asked.add(expr)
            if self._truths is not None and expr not in self._truths:
                self.differing += 1
                self._decide(expr, general)
                return general
            self._assume(expr, truth)
            return truth
        if not boolean:
            self._assume(sympy.Eq(expr, truth), sympy.true)
        elif expr in self.node.scalars or self._is_about_numbers(expr):
            self._assume(expr, truth)
        else:
            self._decide(expr, truth)
            if not self._is_about_units(expr):
                self.node.choices.add(expr)
                self._choices.add(expr)
        return truth

    def drops_dims(self) -> bool:
        """Whether the node at hand drops a dim where its size is 1, and that size is born from data."""
        node = self.node
        if node is None or getattr(node.call, "__name__", node.call) not in ("squeeze", "squeeze_") or not node.args:
            return False
        sizes = node.args[0].sizes
        given = [*node.args[1:], *(node.kwargs or {}).values()]
        dims = [d for g in given for d in (g if isinstance(g, (tuple, list)) else [g])]
        if not all(type(d) is int and -len(sizes) <= d < len(sizes) for d in dims):
            return False
        return any(s.free_symbols and not self.owns(s) for s in ([sizes[d] for d in dims] if given else sizes))

    def _is_about_numbers(self, expr: sympy.Basic) -> bool:
        """Whether a question is about int and float arguments alone: it is about values then, not about shapes."""
        return all(self.symbols[s].kind == "number" for s in expr.free_symbols)

    def _is_about_units(self, expr: sympy.Basic, answer: sympy.Basic | None = None) -> bool:
        """Whether all sizes from 2 on answer alike (with `answer`): it only tells 0 and 1 from the rest."""
        assert self.env is not None
        if isinstance(expr, (sympy.And, sympy.Or)) and answer is None:
            return all(self._is_about_units(arg) for arg in expr.args)
        if isinstance(expr, sympy.Not):
            return self._is_about_units(expr.args[0], None if answer is None else sympy.Not(answer))
        value = self.env.settled_from_two(expr)
        return value is not None and (answer is None or bool(value) == bool(answer))

    def _takes_a_way_of_its_own(self, expr: sympy.Basic, truth: sympy.Basic) -> bool:
        """Whether no size from 2 on has this answer: autograd's formulas then differ in more than metadata."""
        assert self.env is not None
        value = None if expr in self._choices else self.env.settled_from_two(expr)
        return value is not None and bool(value) != bool(truth)

    def _must_be_known(self, expr: sympy.Basic) -> bool:
        """Whether lowering has no way on without the answer: the sign of a slice's bound (`n - 1 >= 0`, `n >= 1`)."""
        if self._is_about_numbers(expr):
            return True
        return isinstance(expr, (sympy.Ge, sympy.Lt)) and expr.args[1] in (0, 1)

    def begin_node(self, node: NodeRecord, truths: frozenset[sympy.Basic] | None = frozenset()) -> None:
        """A node asks from here on. `truths` are the questions that get their true answer; None means all of them."""
        self.node, self._truths, self.differing = node, truths, 0
        self._insisted = set()
        if truths is not None and not truths:
            self._asked = set()

    def unit_questions(self) -> frozenset[sympy.Basic]:
        """Questions of the current node whether some size is 0 or 1, where it is."""
        return frozenset(
            e
            for e in self._asked
            if isinstance(e, sympy.Eq) and len(e.free_symbols) == 1 and self.truth(e) == sympy.true
        )

    @contextlib.contextmanager
    def lowering(self) -> Iterator[None]:
        """The backend makes code; what it asks now is not about the graph."""
        before, self.phase = self.phase, "lowering"
        try:
            yield
        finally:
            self.phase = before

    @contextlib.contextmanager
    def off_the_record(self) -> Iterator[None]:
        """Questions asked inside are answered with the hint and forgotten."""
        before, self.silent = self.silent, True
        try:
            yield
        finally:
            self.silent = before

    def overheard(self, expr: sympy.Basic) -> None:
        """A question that was asked only to hear whether the answer is known."""
        if self.node is not None and self.phase == "trace" and not self.silent:
            truth = self.truth(expr)
            if truth in (sympy.true, sympy.false):
                self._decide(expr, truth)

    def require(self, expr: sympy.Basic) -> bool:
        """The framework insists on `expr`. False where it does not hold, and the framework raises its own error."""
        if self.truth(expr) != sympy.true:
            if self.phase == "aot" and not self.exact:
                raise self.retrace  # a general answer led here
            return False
        if self.silent:
            return True
        # Where nothing is learnt from it, the node itself can say whether it matters that it fails.
        if self.node is not None and self.phase == "trace" and not _teaches(expr):
            self._insisted.add(expr)
            self._decide(expr, sympy.true)
            return True
        if self.phase == "aot" and not _teaches(expr):
            self._insisted.add(expr)
            self.aot_decisions.setdefault(expr, Answer(expr, True, "framework", ""))
            return True
        if expr not in self.requirements:
            self.requirements[expr] = self._note(expr, True)
        assert self.env is not None
        self.env.learn(expr, guard=False)
        return True

    def _decide(self, expr: sympy.Basic, outcome: sympy.Basic) -> None:
        assert self.node is not None
        self._outcomes[expr] = bool(outcome)
        known = self.node.decisions.setdefault(expr, Answer(expr, bool(outcome), "framework", ""))
        if known.outcome != bool(outcome):
            self.node.contradictory = True

    def _assume_truth(self, expr: sympy.Basic, truth: sympy.Basic) -> None:
        """A question has the outcome, or a size the value, that it has for the hints."""
        if truth in (sympy.true, sympy.false):
            self._assume(expr, truth)
        else:
            self._assume(sympy.Eq(expr, truth), sympy.true)

    def _assume(self, expr: sympy.Basic, outcome: sympy.Basic) -> None:
        note = self._note(expr, bool(outcome))
        self.predicates.setdefault(note.fact, note)
        assert self.env is not None
        self.env.learn(note.fact, guard=True)

    def _note(self, expr: sympy.Basic, outcome: bool) -> Answer:
        asked_by, where = self._locate()
        return Answer(expr, outcome, asked_by, where)

    # -- the end -----------------------------------------------------------------------------------------------

    def finish(self, inputs: Sequence[InputRecord]) -> str | None:
        return self.on_finish(inputs)

    def text(self, expr: sympy.Basic) -> str:
        """An expression in the words of the user: x.shape[0] > 8."""
        names = {s: sympy.Symbol(r.text) for s, r in self.symbols.items()}
        return relation_text(expr.xreplace(names))


def _teaches(expr: sympy.Basic) -> bool:
    """Whether a requirement is plain enough to simplify sizes with: an equality, or a bound on one size."""
    if isinstance(expr, sympy.Eq):
        return any(side.is_Symbol for side in expr.args)
    return isinstance(expr, sympy.Rel) and len(expr.free_symbols) == 1


def _memory_order(dims: int, rank: Callable[[int], int | None]) -> list[int]:
    """Dims from innermost to outermost; those without a rank keep the place they have in a contiguous tensor."""
    ranked = sorted((i for i in range(dims) if rank(i)), key=lambda i: (rank(i), -i))
    if ranked == sorted(ranked, reverse=True):
        return list(range(dims))[::-1]
    order = ranked
    for i in range(dims):
        if i not in ranked:
            # Beside its right-hand neighbour if that has a place, else innermost.
            right = next((j for j in range(i + 1, dims) if j in order), None)
            order.insert(order.index(right) + 1 if right is not None else 0, i)
    return order


def _kind(source: Any) -> str:
    prop = getattr(source, "prop", None)
    return {"SIZE": "size", "STRIDE": "stride", "STORAGE_OFFSET": "offset"}.get(getattr(prop, "name", ""), "number")


def describe_source(name: str) -> str:
    """L['x'].size()[0] as x.shape[0]."""
    import re

    text = re.sub(r"^[LG]\['(\w+)'\]", r"\1", name)
    text = re.sub(r"\.size\(\)\[(\d+)\]", r".shape[\1]", text)
    text = re.sub(r"\.stride\(\)\[(\d+)\]", r".stride(\1)", text)
    return re.sub(r"\._(?:modules|parameters|buffers)\['(\w+)'\]", r".\1", text)


_OPERATORS = {"Equality": "==", "Unequality": "!=", "StrictGreaterThan": ">", "StrictLessThan": "<"}
_OPERATORS |= {"GreaterThan": ">=", "LessThan": "<="}


def relation_text(expr: sympy.Basic) -> str:
    if isinstance(expr, sympy.Not):
        return f"not ({relation_text(expr.args[0])})"
    if isinstance(expr, (sympy.And, sympy.Or)):
        word = " and " if isinstance(expr, sympy.And) else " or "
        return word.join(f"({relation_text(a)})" for a in sorted(expr.args, key=str))
    operator = _OPERATORS.get(type(expr).__name__)
    if operator:
        return f"{expr.args[0]} {operator} {expr.args[1]}"
    return str(expr)
