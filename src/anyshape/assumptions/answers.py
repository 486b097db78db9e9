"""The values of a recording: symbols, inputs, answers, and graph nodes with the questions they asked.

Owns the values, and what each says of other sizes. Who asks, and what is answered, is told in `recording`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import sympy

# Calls that give the same values whichever way they take, a copy or a view.
COPY_OR_VIEW = ("reshape", "reshape_as", "flatten", "ravel", "contiguous", "unflatten")


def name_of(call: Any) -> str:
    """A function, an operator or a method by its name alone."""
    return str(getattr(call, "__name__", call)).partition(".")[0]


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
    asked_by: str  # user | framework; of facts also implied: it follows from what was declared
    where: str  # file:line
    line: str = ""  # the user's, where another one asked

    @property
    def fact(self) -> sympy.Basic:
        return self.expr if self.outcome else sympy.Not(self.expr)

    def holds(self, sizes: Mapping[sympy.Basic, sympy.Basic]) -> bool:
        """Whether the question has this outcome at `sizes`."""
        try:
            return bool(self.expr.xreplace(sizes) == sympy.sympify(self.outcome))
        except (ZeroDivisionError, AssertionError):  # `n % 0` has no answer
            return False


@dataclasses.dataclass(frozen=True)
class Ref:
    """An argument of a step: what an earlier one gave."""

    index: int


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
    leaf_written: bool = False  # its result is written to, and may be a view of an input that autograd guards
    loosened: bool = False  # told of strides what holds for most of them
    strides_show: bool = True  # not where the layout of inputs is declared to be any
    contradictory: bool = False  # a question got its general answer once, and the true one another time
    where: str = ""  # the user's file and line
    step: Any = None  # its place among the steps of the graph; while it is captured, the node of the graph itself

    @property
    def name(self) -> str:
        return name_of(self.call)

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
