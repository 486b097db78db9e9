"""The recording of a capture: its questions about free sizes, answered as decision, predicate or requirement.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import sympy

from anyshape.assumptions.answers import Answer, InputRecord, NodeRecord, SymbolRecord
from anyshape.assumptions.declared_sizes import Declared
from anyshape.assumptions.oblivious import Oblivious, Refused
from anyshape.assumptions.questions import METADATA, ends_a_part, is_in, is_unit_question, kind_of, teaches
from anyshape.assumptions.wording import describe_source, relation_text
from anyshape.errors import InvariantError

# Stand-ins for sizes 0 and 1 at a first capture, so that a program is captured as general as it can be whatever
# size came first. Whether it holds for the sizes that really came is then verified like any other class.
# Where 1 means a real broadcast its stand-in does not hold: then only 0 has one, and at last neither.
STAND_INS: tuple[dict[int, int], ...] = ({0: 36, 1: 48}, {0: 36}, {})


# Some loops of torch end by an answer that no single size would give them (`_reshape_view_helper`): a node that asks
# more often than this is in one.
MOST_QUESTIONS = 20_000


class Environment(Protocol):
    """The little that is needed of a shape environment."""

    def learn(self, fact: sympy.Basic, *, guard: bool) -> None: ...

    def settled(self, expr: sympy.Basic) -> sympy.Basic | None: ...

    def settled_from_two(self, expr: sympy.Basic) -> sympy.Basic | None: ...

    def replace(self, expr: sympy.Basic) -> sympy.Basic: ...

    def named_alike(self, expr: sympy.Basic) -> sympy.Basic: ...


class Recording:
    """The symbols, decisions, predicates and requirements of one capture."""

    def __init__(
        self,
        *,
        locate: Callable[[], tuple[str, str]],
        retrace: type[BaseException],
        stand_ins: Mapping[int, int] | None = None,
        kept: frozenset[str] = frozenset(),
        exact: bool = False,
        declared: Declared | None = None,
        top: bool = False,
        user_line: Callable[[], str | None] = lambda: None,
        in_a_kernel: Callable[[], bool] = lambda: False,
        graph_break: Callable[[str], Exception] | None = None,
        describe: Callable[[str], str] | None = None,
    ) -> None:
        self._user_line = user_line
        self._in_a_kernel = in_a_kernel  # whether one call of the graph asks, which is the same call whatever it hears
        self._describe = describe or describe_source  # a source in the words of the user
        self.declared = declared or Declared()
        self.oblivious = Oblivious(self, locate=locate, user_line=user_line, graph_break=graph_break)
        self.facts: dict[sympy.Basic, Answer] = {}  # declared ones: no predicates, yet not true of every tensor
        self.loose_strides: set[sympy.Basic] = set()  # of inputs whose layout may be any
        self.asserted: set[sympy.Basic] = set()  # conditions on unbacked sizes, of the user's `assert`
        self.insisting: dict[sympy.Symbol, set[Any]] = {}  # the calls that a number born from data has to suit
        self.unwritable: dict[int, str] = {}  # memory to which no graph writes as eager does, and why
        self.part_lengths: set[int] = set()  # of the parts that tensors are split in
        self.raised: str | None = None  # what a call of the graph raised: the function may go on, for other sizes not
        self.writes = False  # the graph writes to memory that it shares
        self.top = top  # nothing of the call has run before, and its arguments are those that the entry check let in
        self.compared: set[sympy.Basic] = set()  # floats of the function that it compares with something
        self.exact_floats: list[tuple[Any, float]] = []  # sources of floats that are constants, and their values
        self.let_in: set[str] = set()  # sources of inputs that the entry check has seen
        self.env: Environment | None = None
        self.stand_ins = stand_ins or {}
        self.kept = kept  # sizes that have no stand-in, by text or declared name
        self.blamed: set[str] = set()  # sizes whose stand-in answered otherwise than they do
        self.exact = exact  # the aten graph gets true answers where general ones do not hold
        self.substituted = False  # a size of 0 or 1 was replaced by a stand-in
        self.symbols: dict[sympy.Symbol, SymbolRecord] = {}
        self.hints: dict[sympy.Basic, sympy.Integer] = {}
        self.actuals: dict[sympy.Basic, sympy.Integer] = {}
        self.predicates: dict[sympy.Basic, Answer] = {}
        self.requirements: dict[sympy.Basic, Answer] = {}
        self.nodes: list[NodeRecord] = []
        self.steps: list[NodeRecord] = []  # every node of the captured graph, arguments given by `Ref`
        self.reads_strides = False  # the program asks a tensor for its strides
        self.differentiates = False  # an input requires a gradient
        self.on_gpu = False
        self.leaves_no_trace: bool | None = None  # when it raises, for all that AOTAutograd knows
        self.node: NodeRecord | None = None
        self.silent = False
        self.relies = False
        self.finding_strides = False  # of a view, which is one call of the graph whatever is asked
        self.differing = 0  # general answers at the current node that are not the truth for the hints
        self.phase = "trace"  # trace | aot | lowering
        self.aten: list[NodeRecord] = []
        self.aot_decisions: dict[sympy.Basic, Answer] = {}
        self.aot_contradictory = False
        self._truths: frozenset[sympy.Basic] | None = frozenset()
        self._questions = 0  # of the current node
        self._asked: set[sympy.Basic] = set()
        self._from_two = False
        self._told_of_units: set[sympy.Basic] = set()  # sizes of which the current node was told that they are 0 or 1
        self._told_generally: set[sympy.Basic] = set()  # and those of which it was told what holds for most
        self._for_hints: dict[sympy.Basic, sympy.Basic] = {}  # what was asked, and what it is for the hints
        self.units: set[sympy.Basic] = set()  # predicates that only tell sizes of 0 and 1 from the rest
        self.forgotten: set[sympy.Basic] = set()  # those of them that the backend did not know of
        self.errors: Any = None  # what is made of those that the program raises
        self.graph_of_calls: Any = None  # the aten graph, where another can be compared with it
        self.is_known: Callable[[Any], bool] | None = None  # whether a program computes what an aten graph does
        self._insisted: set[sympy.Basic] = set()  # what the node at hand required it does not ask
        self._choices: set[sympy.Basic] = set()  # of any node
        self._outcomes: dict[sympy.Basic, bool] = {}  # every decision's, for the backend to be told the same
        self.graph_breaks: list[str] = []
        self.out_calls: list[tuple[str, str, str]] = []  # (op, source of the buffer, file:line)
        self.inputs: list[str] = []  # sources of the graph's inputs, in order
        self.copied: dict[str, str | None] = {}  # source of a buffer -> why its kernel does not write to it
        self.versions: dict[int, int] = {}  # id of an input's fake tensor -> its version before anything is written
        self.apart: tuple[list[Any], list[Any]] | None = None  # sources of inputs written to, and of the others
        self.on_finish: Callable[[Sequence[InputRecord]], str | None] = lambda inputs: None
        self.retrace: type[BaseException] = retrace
        self.locate = locate

    # -- symbols -----------------------------------------------------------------------------------------------

    def hint_for(self, source: Any, actual: int, *, declared: int | None = None, oblivious: bool = False) -> int:
        """The number that stands for a size while the graph is captured."""
        if declared is not None:
            self.substituted |= declared != actual and not oblivious
            return declared
        if oblivious and kind_of(source) == "size":
            return STAND_INS[0].get(actual, actual)
        replaced = actual in self.stand_ins and kind_of(source) == "size"
        if replaced and describe_source(source.name) not in self.kept:
            self.substituted = True
            return self.stand_ins[actual]
        return actual

    def know(self, fact: sympy.Basic, *, at_the_door: bool) -> None:
        """Something declared: true of every call that the entry check lets in, or for the program to see to."""
        if not self.owns(fact):
            return
        if not at_the_door and fact.xreplace(self.actuals) == sympy.false:
            sizes = {self.symbols[s].text: self.actuals[s] for s in sorted(fact.free_symbols, key=str)}
            what, values = f"{self.text(fact)} does not hold", ", ".join(f"{k} = {v}" for k, v in sizes.items())
            fix = "mark sizes that they have, or take the mark away"
            raise Refused(InvariantError(what, where="a mark on the tensor", value=values, fix=fix))
        if not at_the_door and self.oblivious.concerns(fact):
            self.oblivious.insist(fact)
            return
        self.facts.setdefault(fact, Answer(fact, True, "user", ""))
        self.learn(fact)

    def learn(self, fact: sympy.Basic) -> None:
        assert self.env is not None
        if self.truth(fact) == sympy.true:  # what the hints contradict would only confuse
            self.env.learn(fact, guard=True)

    def answer_for_free_stride(self, expr: sympy.Basic) -> sympy.Basic | None:
        """What a framework is told of strides that may be any: that they are like nothing else. None if not about them.

        The way for strides of which nothing is known is right for all of them; which of two comes first is only speed.
        """
        if self.loose_strides.isdisjoint(expr.free_symbols):
            return None
        if isinstance(expr, (sympy.And, sympy.Or, sympy.Not)):
            parts = [self.answer_for_free_stride(a) for a in expr.args]
            return None if any(p is None for p in parts) else expr.func(*parts)
        if isinstance(expr, (sympy.Eq, sympy.Ne)):
            return sympy.sympify(isinstance(expr, sympy.Ne))
        return self.truth(expr) if isinstance(expr, sympy.Rel) else None

    @property
    def tracing_a_node(self) -> bool:
        return self.node is not None and self.phase == "trace"

    @property
    def is_between_nodes(self) -> bool:
        """Whether the function is being traced, and none of its nodes."""
        return self.node is None and self.phase == "trace"

    def implied(self, expr: sympy.Basic) -> bool | None:
        """What the invariants decide; whoever relies on it relies on them, so it is kept among the facts."""
        known = self.declared.implied(expr)
        if known is not None:
            answer = Answer(expr, known, "implied", "")
            self.facts.setdefault(answer.fact, answer)
        return known

    def from_two(self, expr: sympy.Basic) -> sympy.Basic | None:
        assert self.env is not None
        return self.env.settled_from_two(expr)

    def add_symbol(self, symbol: sympy.Symbol, source: Any, *, actual: int | float, hint: int | float) -> None:
        self.symbols[symbol] = SymbolRecord(symbol, self._describe(source.name), kind_of(source), actual, hint)
        self.hints[symbol] = sympy.sympify(hint)
        self._for_hints.clear()
        self.actuals[symbol] = sympy.sympify(actual)

    # -- questions ---------------------------------------------------------------------------------------------

    def owns(self, expr: sympy.Basic) -> bool:
        """Whether a question is about free sizes alone."""
        symbols: set[Any] = getattr(expr, "free_symbols", set())
        return bool(symbols) and self.symbols.keys() >= symbols

    def truth(self, expr: sympy.Basic) -> sympy.Basic:
        known = self._for_hints.get(expr)
        if known is None:
            try:
                known = expr.xreplace(self.hints)
            except ZeroDivisionError:  # a question about `n // 0`, asked where n is 0
                known = sympy.false
            self._for_hints[expr] = known
        return known

    def answer(self, expr: sympy.Basic, general: sympy.Basic | None) -> sympy.Basic:
        """Answer a question that what is known does not settle. `general` is the answer of a `guard_or_*` question."""
        if self.oblivious.concerns(expr):
            return self.oblivious.answer(expr, general)
        truth = self.truth(expr)
        if general is None and not self.exact and not self.relies and (self.node is not None or self.phase != "trace"):
            general = self.answer_for_free_stride(expr)
        if self.silent:
            return truth
        if self.tracing_a_node and expr in self._insisted and truth == sympy.true:
            return truth
        if self.relies:
            self._assume_truth(expr, truth)
            return truth
        self._questions += 1
        if self._questions > MOST_QUESTIONS:
            raise self.retrace("torch asks about sizes without an end")
        boolean = truth in (sympy.true, sympy.false)
        if self.exact and self.phase == "aot" and general is not None and truth != general:
            if boolean and not is_unit_question(expr, truth) and is_in(METADATA, self.locate()[1]):
                self.aot_decisions[expr] = Answer(expr, bool(truth), "framework", "")
            else:
                self._assume_truth(expr, truth)
            return truth
        if self.phase == "lowering":
            if general is not None and not self._must_be_known(expr):
                return general
            # Code is made from these answers (the order of strides, whether dims can be merged): what all sizes from 2
            # on say goes before what a trace took for granted where it could not tell.
            if boolean and self._is_about_units(expr, truth):
                return truth
            if boolean and general is None and expr in self._outcomes:
                return sympy.sympify(self._outcomes[expr])
            self._assume_truth(expr, truth)
            return truth
        if self.phase == "aot":
            if not boolean:
                self._assume(sympy.Eq(expr, truth), sympy.true)
                return truth
            if general is None and ends_a_part(expr, self.part_lengths, self.locate):
                expr = expr.weak
                truth = self.truth(expr)
            elif general is None and (self._is_about_numbers(expr) or self._may_show(expr, truth)):
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
            if self._truths is not None and expr not in self._truths and not self._is_about_a_mask(expr):
                return self._answer_generally(expr, general)
            self._assume(expr, truth)
            return truth
        if not boolean:
            self._assume(sympy.Eq(expr, truth), sympy.true, baked=True)
        elif expr in self.node.scalars or self._is_about_numbers(expr):
            self._assume(expr, truth)
        elif self._squeezes() and self._takes_a_way_of_its_own(expr, truth):
            self._assume(expr, truth)  # a dim that is dropped is to be dropped wherever it is asked again
        else:
            from_two = self.env.settled_from_two(expr) if self.env is not None else None
            if from_two is not None and from_two != truth:
                if self._from_two:
                    return self._answer_generally(expr, from_two)
                self._told_of_units |= expr.free_symbols
            self._decide(expr, truth)
            if not self._is_about_units(expr):
                self._choose(expr)
        return truth

    def _answer_generally(self, expr: sympy.Basic, general: sympy.Basic) -> sympy.Basic:
        self.differing += 1
        self._told_generally |= expr.free_symbols
        self._decide(expr, general)
        return general

    @property
    def mixes(self) -> bool:
        """Whether a size is 0 or 1 to one question of the current node and, for a general answer, not to another.

        `n == 1` is no and `16 * n == 16` is yes then: loops of torch make sizes like `16 // n` of that.
        """
        return not self._told_of_units.isdisjoint(self._told_generally)

    def drops_dims(self) -> bool:
        """Whether the node at hand drops a dim where its size is 1, and that size is born from data."""
        node = self.node
        if node is None or not self._squeezes() or not node.args:
            return False
        sizes = node.args[0].sizes
        given = [*node.args[1:], *(node.kwargs or {}).values()]
        dims = [d for g in given for d in (g if isinstance(g, (tuple, list)) else [g])]
        if not all(type(d) is int and -len(sizes) <= d < len(sizes) for d in dims):
            return False
        return any(s.free_symbols and not self.owns(s) for s in ([sizes[d] for d in dims] if given else sizes))

    def _squeezes(self) -> bool:
        return self.node is not None and self.node.name in ("squeeze", "squeeze_")

    def _is_about_a_mask(self, expr: sympy.Basic) -> bool:
        """Whether attention asks if a mask has the sizes of what it masks, which takes another kernel if not."""
        node = self.node
        if node is None or node.opaque or node.name != "scaled_dot_product_attention":
            return False
        given = {**dict(zip(("query", "key", "value", "attn_mask"), node.args, strict=False)), **node.kwargs}
        if given.get("attn_mask") is None or not isinstance(expr, sympy.Eq):
            return False
        assert self.env is not None
        scores = (*given["query"].sizes[:-1], given["key"].sizes[-2])
        pairs = zip(reversed(given["attn_mask"].sizes), reversed(scores), strict=False)
        return any({*expr.args} == {self.env.replace(m), self.env.replace(s)} for m, s in pairs)

    def _is_about_numbers(self, expr: sympy.Basic) -> bool:
        """Whether a question is about int and float arguments alone: it is about values then, not about shapes."""
        return all(self.symbols[s].kind == "number" for s in expr.free_symbols)

    def are_sizes(self, expr: sympy.Basic) -> bool:
        """Whether no int or float argument is part of an expression."""
        return all(self.symbols[s].kind != "number" for s in expr.free_symbols)

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
        value = None if self._is_a_choice(expr) else self.env.settled_from_two(expr)
        return value is not None and bool(value) != bool(truth)

    def _may_show(self, expr: sympy.Basic, truth: sympy.Basic) -> bool:
        """Whether another answer to a question of AOTAutograd's may be another graph, and not the same one verified."""
        if self.finding_strides:
            return False
        shows = self._takes_a_way_of_its_own(expr, truth) or not (self._is_a_choice(expr) or self._is_about_units(expr))
        return shows and not self._in_a_kernel()

    def _is_a_choice(self, expr: sympy.Basic) -> bool:
        assert self.env is not None
        return self.env.named_alike(expr) in self._choices

    def _must_be_known(self, expr: sympy.Basic) -> bool:
        """Whether lowering has no way on without the answer: the sign of a slice's bound (`n - 1 >= 0`, `n >= 1`)."""
        if self._is_about_numbers(expr):
            return True
        return isinstance(expr, (sympy.Ge, sympy.Lt)) and expr.args[1] in (0, 1)

    def begin_node(
        self, node: NodeRecord, truths: frozenset[sympy.Basic] | None = frozenset(), *, from_two: bool = False
    ) -> None:
        """A node asks from here on. `truths` are the questions that get their true answer; None means all of them.

        With `from_two` those without a general answer that only tell 0 and 1 from the rest get the answer of the rest.
        """
        self.node, self._truths, self.differing, self._questions = node, truths, 0, 0
        self._from_two = from_two
        self._told_of_units, self._told_generally = set(), set()
        self._insisted = set()
        if truths is not None and not truths:
            self._asked = set()

    def unit_questions(self) -> frozenset[sympy.Basic]:
        """Questions of the current node whether some size is 0 or 1, where it is."""
        return frozenset(e for e in self._asked if is_unit_question(e, self.truth(e)))

    @contextlib.contextmanager
    def lowering(self) -> Iterator[None]:
        """The backend makes code; what it asks now is not about the graph."""
        before, self.phase = self.phase, "lowering"
        try:
            yield
        finally:
            self.phase = before

    @contextlib.contextmanager
    def assume_true(self) -> Iterator[None]:
        """Questions asked inside are about facts that code was made under: the true answers are assumed."""
        before, self.relies = self.relies, True
        try:
            yield
        finally:
            self.relies = before

    @contextlib.contextmanager
    def off_the_record(self) -> Iterator[None]:
        """Questions asked inside are answered with the hint and forgotten."""
        before, self.silent = self.silent, True
        try:
            yield
        finally:
            self.silent = before

    def note_static_query(self, expr: sympy.Basic) -> None:
        """A question that was asked only to hear whether the answer is known."""
        if self.oblivious.concerns(expr):
            return
        if self.node is not None and self.phase == "trace" and not self.silent:
            truth = self.truth(expr)
            if truth in (sympy.true, sympy.false):
                self._decide(expr, truth)

    def require(self, expr: sympy.Basic) -> bool:
        """The framework insists on `expr`. False where it does not hold, and the framework raises its own error."""
        if self.oblivious.concerns(expr):
            if not self.silent:
                self.oblivious.insist(expr)
            return True
        if self.truth(expr) != sympy.true:
            if self.substituted and not self.silent and Answer(expr, True, "", "").holds(self.actuals):
                self.blame(expr)  # a stand-in where another size has none
                raise self.retrace
            if self.phase == "aot" and not self.exact:
                raise self.retrace  # a general answer led here
            return False
        if self.silent:
            return True
        # Where nothing is learnt from it, the node itself can say whether it matters that it fails.
        if self.node is not None and self.phase == "trace" and not teaches(expr):
            self._insisted.add(expr)
            self._decide(expr, sympy.true)
            return True
        if self.phase == "aot" and not teaches(expr):
            self.aot_decisions.setdefault(expr, Answer(expr, True, "framework", ""))
            return True
        if expr not in self.requirements:
            self.requirements[expr] = self._note(expr, True)
        assert self.env is not None
        self.env.learn(expr, guard=False)
        return True

    def insisted_on(self, expr: sympy.Basic) -> None:
        """The framework insists on something about numbers born from data, which is told when the program runs."""
        not_negative = isinstance(expr, sympy.Ge) and expr.rhs == 0  # no size is
        if self.phase == "trace" and not self.silent and not not_negative:
            for symbol in expr.free_symbols - self.symbols.keys():
                self.insisting.setdefault(symbol, set()).add(self.node.call if self.node is not None else None)

    def _decide(self, expr: sympy.Basic, outcome: sympy.Basic) -> None:
        assert self.node is not None
        self._outcomes[expr] = bool(outcome)
        known = self.node.decisions.setdefault(expr, Answer(expr, bool(outcome), "framework", ""))
        if known.outcome != bool(outcome):
            self.node.contradictory = True

    def _choose(self, expr: sympy.Basic) -> None:
        assert self.node is not None and self.env is not None
        self.node.choices.add(expr)
        self._choices.add(self.env.named_alike(expr))

    def _assume_truth(self, expr: sympy.Basic, truth: sympy.Basic) -> None:
        """A question has the outcome, or a size the value, that it has for the hints."""
        if truth in (sympy.true, sympy.false):
            self._assume(expr, truth)
        else:
            self._assume(sympy.Eq(expr, truth), sympy.true)

    def blame(self, expr: sympy.Basic) -> None:
        """A question has another answer at the sizes of the call: those in it that have a stand-in are why."""
        for symbol in expr.free_symbols:
            if symbol in self.symbols and self.hints[symbol] != self.actuals[symbol]:
                self.blamed |= {self.symbols[symbol].text, self.declared.names.get(symbol, "")}

    def _assume(self, expr: sympy.Basic, outcome: sympy.Basic, *, baked: bool = False) -> None:
        note = self._note(expr, bool(outcome))
        if self.phase == "trace" and note.fact not in self.predicates and self._is_about_units(expr):
            self.units.add(note.fact)
        self.predicates.setdefault(note.fact, note)
        self.forgotten.discard(note.fact)  # asked once more by the backend
        alone = self.substituted and self.phase == "trace" and (self.node is None or baked)
        if alone and not note.holds(self.actuals):
            self.blame(expr)
            raise self.retrace  # the rest of this capture would be for nothing
        assert self.env is not None
        self.env.learn(note.fact, guard=True)

    def _note(self, expr: sympy.Basic, outcome: bool) -> Answer:
        asked_by, where = self.locate()
        return Answer(expr, outcome, asked_by, where, self._user_line() or "")

    # -- the end -----------------------------------------------------------------------------------------------

    def finish(self, inputs: Sequence[InputRecord]) -> str | None:
        return self.on_finish(inputs)

    def text(self, expr: sympy.Basic) -> str:
        """An expression in the words of the user: x.shape[0] > 8."""
        names = {s: sympy.Symbol(r.text) for s, r in self.symbols.items()}
        return relation_text(expr.xreplace(names))

    def in_names(self, expr: sympy.Basic) -> tuple[str, str]:
        """An expression over declared names, and a declaration of those that are missing: `n > 8`, `shapes={...}, `."""
        names = dict(self.declared.names)
        missing: dict[str, list[str]] = {}
        for symbol in sorted(expr.free_symbols - names.keys(), key=str):
            names[symbol] = name = f"n{len(names)}" if names else "n"
            path, _, index = self.symbols[symbol].text.rpartition(".shape[")
            missing.setdefault(path, []).append("_ " * int(index[:-1] if index[:-1].isdigit() else 0) + f"{name} ...")
        shapes = ", ".join(f'"{path}": "{dims[0]}"' for path, dims in missing.items())
        text = relation_text(expr.xreplace({s: sympy.Symbol(n) for s, n in names.items()}))
        return text, f"shapes={{{shapes}}}, " if shapes else ""
