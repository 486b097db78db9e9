"""Size-oblivious semantics: questions about 0 and 1 are answered as for 2 or more, and asserted at run time.

Owns the answers to questions about such sizes. A framework's question about 0 and 1 is answered as if the size were at
least 2; what it insists on, and what it takes for granted of other numbers, becomes an assertion that the program makes
at run time; a branch of the user's own is refused. Nothing of it is ever a guard. Knows sympy, not torch.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import sympy

from anyshape.errors import AssumptionError, BranchError


class Refused(BaseException):
    """A capture ends here, and so does the call, with this error. Not an Exception, so that nothing keeps it."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class Asking(Protocol):
    """The little that is needed of a recording."""

    silent: bool
    exact: bool
    relies: bool

    @property
    def tracing_a_node(self) -> bool: ...

    def answer_for_free_stride(self, expr: sympy.Basic) -> sympy.Basic | None: ...

    def truth(self, expr: sympy.Basic) -> sympy.Basic: ...

    def from_two(self, expr: sympy.Basic) -> sympy.Basic | None: ...

    def learn(self, fact: sympy.Basic) -> None: ...

    def text(self, expr: sympy.Basic) -> str: ...

    def in_names(self, expr: sympy.Basic) -> tuple[str, str]: ...


class Oblivious:
    """The sizes of one capture that may not be asked about, and what is assumed of them."""

    def __init__(
        self,
        recording: Asking,
        *,
        locate: Callable[[], tuple[str, str]],
        user_line: Callable[[], str | None],
        graph_break: Callable[[str], Exception] | None,
    ) -> None:
        self.symbols: set[sympy.Basic] = set()
        self.assertions: dict[sympy.Basic, str] = {}  # each with the file and line that it came from
        # Choices of the node that is being traced: the answer given, and where; insisted on only if they show.
        self.choices: dict[sympy.Basic, tuple[sympy.Basic, str]] = {}
        self.loosened = False  # a question about strides got the answer that holds for most of them
        self.strict = False  # and now gets the true one
        self.otherwise = False  # choices are answered the other way round
        self._harmless: dict[sympy.Basic, sympy.Basic] = {}
        self._recording = recording
        self._locate, self._user_line, self._graph_break = locate, user_line, graph_break

    def concerns(self, expr: sympy.Basic) -> bool:
        return bool(self.symbols) and not self.symbols.isdisjoint(expr.free_symbols)

    def answer(self, expr: sympy.Basic, general: sympy.Basic | None) -> sympy.Basic:
        recording = self._recording
        if recording.silent:
            return recording.truth(expr)
        if general is not None:
            return general
        asked_by, where = self._locate()
        if asked_by == "user":
            self._refuse_branch(expr, where)
        loose = recording.answer_for_free_stride(expr)
        if loose is not None and expr not in self.assertions:
            self.loosened = True
            if not (self.strict or recording.exact or recording.relies):
                return loose
        value = recording.from_two(expr) if loose is None else None
        if value is not None:
            return value
        truth = recording.truth(expr)
        boolean = truth in (sympy.true, sympy.false)
        if expr in self._harmless:
            return self._harmless[expr]
        if boolean and recording.tracing_a_node and loose is None:
            self.choices[expr] = truth, where
            return sympy.Not(truth) if self.otherwise else truth
        fact = (expr if truth == sympy.true else sympy.Not(expr)) if boolean else sympy.Eq(expr, truth)
        self.insist(fact, where)
        return truth

    def settle_choices(self, *, shows: bool) -> None:
        """The node has been traced: with the choices the other way round it was the same, or it was not."""
        choices, self.choices = self.choices, {}
        for expr, (truth, where) in choices.items():
            if shows:
                self.insist(expr if truth == sympy.true else sympy.Not(expr), where)
            else:
                self._harmless[expr] = truth

    def insist(self, fact: sympy.Basic, where: str = "") -> None:
        """The program asserts `fact` of each call from here on."""
        if fact not in self.assertions:
            self.assertions[fact] = self._user_line() or where or self._locate()[1]
            self._recording.learn(fact)

    def _refuse_branch(self, expr: sympy.Basic, where: str) -> None:
        text = self._recording.text(expr)
        if self._graph_break is not None:
            raise self._graph_break(f"a branch on a size that may not be asked about: {text} at {where}")
        branch = isinstance(expr, sympy.logic.boolalg.Boolean)
        claim, shapes = self._recording.in_names(expr if branch else sympy.Eq(expr, self._recording.truth(expr)))
        words = f'{shapes}where=["{claim}"]'
        ways = {
            words: "if that always holds",
            "torch.cond(pred, yes, no, args)": "both ways in one program",
            'semantics="eager"': 'a program for each way; or on_branch="break"',
        }
        width = max(map(len, ways))
        asks = f"asks {text}" if branch else f"needs the value of {text}"
        raise Refused(
            BranchError(
                f"your code {asks}, and oblivious semantics may not answer",
                where=_with_code(where),
                fix="\n".join(f"{way:<{width}}  {what}" for way, what in ways.items()),
            )
        )


def failed(fact: str, where: str, values: Mapping[str, Any]) -> AssumptionError:
    """The error for a call in which something does not hold that the program was built on."""
    return AssumptionError(
        f"{fact} does not hold, and the program assumes it",
        where=_with_code(where),
        value=", ".join(f"{name} = {value}" for name, value in values.items()),
        fix='pass sizes for which it holds, or compile with semantics="eager"',
    )


def _with_code(where: str) -> str:
    """file:line and the line itself."""
    file, _, line = where.rpartition(":")
    code = linecache.getline(file, int(line)).strip() if line.isdigit() else ""
    return f"{where}\n           {code}" if code else where
