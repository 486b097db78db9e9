"""`anyshape.explain`: what a compiled function has done, as text, JSON and HTML.

Owns the text, the JSON and the HTML of a report. Reads only the public `f.programs`, `f.fallbacks` and
`f.declared_in`; knows nothing of torch. The terminal form uses rich where it is installed and plain text where it is
not.
"""

from __future__ import annotations

import dataclasses
import html
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired

from anyshape.errors import NotCompilableError
from anyshape.programs import Merge, Predicate, Program


class ExplanationJson(TypedDict):
    """An explanation as values that `json.dumps` takes."""

    name: str
    programs: list[dict[str, object]]
    fallbacks: dict[str, int]
    calls: int
    seconds: float
    declared_in: NotRequired[str]


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The programs of one compiled function and the calls that ran eagerly. Print it, or take `.json()`."""

    name: str
    programs: tuple[Program, ...]
    fallbacks: Mapping[str, int]
    declared_in: str | None = None  # the anyshape.toml that is in force for it

    def json(self) -> ExplanationJson:
        """The report as values that `json.dumps` takes."""
        report: ExplanationJson = {
            "name": self.name,
            "programs": [program.json() for program in self.programs],
            "fallbacks": dict(self.fallbacks),
            "calls": self.calls,
            "seconds": round(sum(map(_cost, self.programs)), 6),
        }
        if self.declared_in is not None:
            report["declared_in"] = self.declared_in
        return report

    @property
    def calls(self) -> int:
        """Calls served by programs; those that ran eagerly are in `fallbacks`."""
        return sum(program.calls for program in self.programs)

    def __str__(self) -> str:
        lines = [self._headline()]
        for number, program in enumerate(self.programs, 1):
            lines += ["", f"{number}. {program.behavior}"]
            lines += [f"   {label + ':':<14}{value}" for label, value in _facts(program)]
        if self.fallbacks:
            lines += ["", "ran eagerly:"]
            lines += [f"   {count} × {reason}" for reason, count in self._by_count()]
        return "\n".join(lines)

    def __rich__(self) -> object:
        """The report as rich renders it: a table a program, and one of the eager runs."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        parts: list[Any] = [Text(self._headline(), style="bold")]
        for number, program in enumerate(self.programs, 1):
            table = Table(title=Text(f"{number}. {program.behavior}"), title_justify="left", show_header=False)
            table.add_column(style="dim", no_wrap=True)
            table.add_column(overflow="fold")
            for label, value in _facts(program):
                table.add_row(label, Text(value))
            parts.append(table)
        if self.fallbacks:
            table = Table(title="ran eagerly", title_justify="left")
            table.add_column("calls", justify="right")
            table.add_column("reason", overflow="fold")
            for reason, count in self._by_count():
                table.add_row(str(count), Text(reason))
            parts.append(table)
        return Group(*parts)

    def _repr_html_(self) -> str:
        """The report in a notebook."""
        parts = [f"<p><b>{html.escape(self._headline())}</b></p>"]
        for number, program in enumerate(self.programs, 1):
            rows = "".join(
                f"<tr><th style='text-align:left'>{html.escape(label)}</th>"
                f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
                for label, value in _facts(program)
            )
            parts.append(f"<p>{number}. <code>{html.escape(program.behavior)}</code></p><table>{rows}</table>")
        if self.fallbacks:
            rows = "".join(f"<tr><td>{c}</td><td>{html.escape(r)}</td></tr>" for r, c in self._by_count())
            parts.append(f"<p>ran eagerly</p><table><tr><th>calls</th><th>reason</th></tr>{rows}</table>")
        return "".join(parts)

    def print(self) -> None:
        """Print in color where rich is installed, else as plain text."""
        try:
            import rich
        except ImportError:
            print(self)
        else:
            rich.print(self)

    def _headline(self) -> str:
        eager = sum(self.fallbacks.values())
        text = f"{self.name}: {_count(len(self.programs), 'program')}, {_count(self.calls, 'call')}"
        text = f"{text}, {eager} run eagerly" if eager else text
        return text if self.declared_in is None else f"{text}, declared in {self.declared_in}"

    def _by_count(self) -> list[tuple[str, int]]:
        return sorted(self.fallbacks.items(), key=lambda item: (-item[1], item[0]))


def explain(f: object) -> Explanation:
    """What was compiled for `f` and why, and which of its calls ran eagerly."""
    f = getattr(f, "_compiled_call_impl", None) or f  # a module that was compiled in place
    programs, fallbacks = getattr(f, "programs", None), getattr(f, "fallbacks", None)
    if not isinstance(programs, tuple) or fallbacks is None:
        raise NotCompilableError(
            "anyshape.explain takes a function compiled by anyshape",
            value=type(f).__name__,
            fix="f = anyshape.compile(fn); f(x); print(anyshape.explain(f))",
        )
    name = getattr(f, "__name__", None) or (programs[0].name if programs else type(f).__name__)
    return Explanation(str(name), programs, dict(fallbacks), getattr(f, "declared_in", None))


def describe(program: Program) -> str:
    """A program in one line and one for each predicate, for messages."""
    lines = [f"{program.name} ({_place(program.file, program.line)}): {program.behavior}"]
    lines += [f"  {_predicate(predicate)}" for predicate in program.predicates]
    return "\n".join(lines)


def _facts(program: Program) -> list[tuple[str, str]]:
    """What there is to say about a program, as label and value; only what applies."""
    facts = [("from", f"{program.name} at {_place(program.file, program.line)}")]
    facts += [("predicate", _predicate(predicate)) for predicate in program.predicates]
    facts += [("merged", _merge(merge)) for merge in program.merges]
    facts += [("requires", requirement) for requirement in program.requirements]
    facts += [("asserts", assertion) for assertion in program.assertions]
    facts.append(("classes", str(program.classes)))
    facts += [("run for each size", text) for text in program.untold]
    facts += [("variant", f"{v.text} ({_count(v.calls, 'call')}, {v.seconds:.2f} s)") for v in program.variants]
    facts += [("dropped", f"a variant for {text}") for text in program.dropped]
    facts.append(("calls", str(program.calls)))
    facts.append(
        (
            "seconds",
            f"capture {program.capture_seconds:.2f}, compile {program.compile_seconds:.2f}, "
            f"verify {program.verify_seconds:.2f}",
        )
    )
    facts += [("out=", f"{call} ({_place(call.file, call.line)})") for call in program.out_calls]
    facts += [("graph break", reason) for reason in program.graph_breaks]
    return facts


def _predicate(predicate: Predicate) -> str:
    asked = "your code" if predicate.asked_by == "user" else "the framework"
    return f"{predicate.text}    asked by {asked} at {_place(predicate.file, predicate.line)}"


def _merge(merge: Merge) -> str:
    sides = (merge.answered, merge.instead_of)
    texts = (" and ".join(f"{p.text} ({_place(p.file, p.line)})" for p in side) for side in sides)
    return " computes the same as ".join(texts)


def _place(file: str, line: int) -> str:
    """file:line, the file relative to the working directory where it lies under it."""
    relative = os.path.relpath(file) if os.path.isabs(file) else file
    return f"{file if relative.startswith('..') else relative}:{line}"


def _cost(program: Program) -> float:
    return program.capture_seconds + program.compile_seconds + program.verify_seconds


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
