"""One exported program: the traces that are tried, the sizes that it is right for, what is refused.

Owns the ways to trace, the sizes that it is right for, what is refused. How torch is
made to trace so, and what the program looks like at the end, are the seams' affair.
"""

from __future__ import annotations

import dataclasses
import inspect
import linecache
import re
from collections.abc import Iterator
from typing import Any

import sympy

from anyshape import ops
from anyshape._torch.capture import failures
from anyshape._torch.export import strict_trace, unbacked_program
from anyshape._torch.fake_runs import concrete
from anyshape._torch.runtime import compiled_modules
from anyshape.admission.boundaries import Limit, limits
from anyshape.assumptions.oblivious import Refused
from anyshape.assumptions.recording import Recording
from anyshape.assumptions.wording import describe_source
from anyshape.compiler import declared_words
from anyshape.declaration import Declaration
from anyshape.declaration.entry_check import EntryCheck
from anyshape.engine.capture_attempts import attempts
from anyshape.errors import ExportError


@dataclasses.dataclass(frozen=True)
class Traced:
    """An exported program, and what it needs of sizes."""

    program: Any
    recording: Recording | None
    limits: tuple[Limit, ...]
    branches: tuple[Limit, ...] = ()  # those at which the program is another one
    loose_views: bool = False  # views that a decomposition lays out otherwise are copies


class Exporter:
    """One callable and what is declared of it."""

    def __init__(self, model: Any, *, shapes: Any, where: Any, semantics: Any) -> None:
        if not callable(model):
            what = f"anyshape.export takes a function or a module, not {type(model).__name__}"
            raise ExportError(what, value=repr(model)[:80], fix="anyshape.export(model, args)", code="AS003")
        self.module = strict_trace.as_module(model)
        self.name = getattr(model, "__qualname__", type(model).__name__)
        try:
            signature = inspect.signature(self.module.forward)
        except (TypeError, ValueError):
            signature = None
        words = declared_words({"shapes": shapes, "where": where, "semantics": semantics})
        self.entry_check = EntryCheck(Declaration.parse(**words, signature=signature), signature, self.module)
        self.names: list[str] = []

    def trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Traced:
        """The program for the behavior of this example."""
        if not isinstance(args, tuple):
            what = f"args is the tuple of the positional arguments, and this is {type(args).__name__}"
            raise ExportError(
                what, value=compiled_modules.in_brief(args), fix="anyshape.export(model, (x,))", code="AS007"
            )
        args, kwargs = strict_trace.dense((args, kwargs))
        self.names = strict_trace.input_names(self.module, args, kwargs)
        traced: Traced = self.entry_check.around(self.entry_check.remembered(self._trace))(*args, **kwargs)
        kept = [x for x in traced.limits if not x.chosen or not self._insisted(x.fact, traced, args, kwargs)]
        return dataclasses.replace(traced, branches=tuple(x for x in kept if x.chosen))

    def _insisted(self, fact: sympy.Basic, traced: Traced, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a size is a certain number because eager raises for any other."""
        size, recording = _pins(fact), traced.recording
        if size is None or recording is None:
            return False
        named = recording.text(size)
        other = {at: int(recording.actuals[size]) + 1 for at, text in self.dims(args, kwargs) if text == named}
        return bool(other) and concrete.fails(self.module, args, kwargs, other)

    def _trace(self, *args: Any, **kwargs: Any) -> Traced:
        error: BaseException | None = None
        for begin in attempts(self.entry_check, top=True, describe=self._describe):
            try:
                program, recording = strict_trace.trace(self.module, args, kwargs, begin=begin, rules=ops.all_rules())
            except Refused as refused:
                raise refused.error from None
            except (failures.Retrace, Exception) as failed:
                error = error or failed
                continue
            if recording is None:
                return Traced(program, None, ())
            found = limits(recording)
            if all(limit.fact.xreplace(recording.actuals) == sympy.true for limit in found):
                return Traced(program, recording, tuple(found))
        if error is None or isinstance(error, failures.Retrace):
            raise ExportError(
                f"no graph of {self.name} is right for the sizes of the example",
                value=str(error) if error is not None else None,
                fix="anyshape.compile(model), which runs such calls eagerly",
            )
        raise error

    def _describe(self, source: str) -> str:
        """A source of the capture in the words of the user: torch traces a function of the flat arguments."""
        text = describe_source(source)
        match = re.match(r"flat_args\[(\d+)\]", text)
        return text if match is None else self.names[int(match[1])] + text[match.end() :]

    def refuse_branches(self, traced: Traced) -> None:
        """Where the program is for one of several ways that the user's code has."""
        recording = traced.recording
        for limit in traced.branches:
            assert recording is not None
            pinned = _pins(limit.fact)
            if limit.asked_by == "user":
                what = f"your code asks {recording.text(limit.fact)}, and one program cannot answer for all sizes"
            elif pinned:
                what = f"the graph is another one for every {recording.text(pinned)}"
            else:
                continue
            claim, shapes = recording.in_names(limit.fact)
            ways = {
                f'{shapes}where=["{claim}"]': "if that always holds",
                "torch.cond(pred, yes, no, args)": "both ways in one program",
                'behaviors="all"': "a program for each way, in one package",
            }
            if pinned:
                del ways["torch.cond(pred, yes, no, args)"]
            width = max(map(len, ways))
            raise ExportError(
                what,
                where=_with_code(limit.where),
                value=f"the example has {_sizes(recording, limit.fact)}",
                fix="\n".join(f"{way:<{width}}  {means}" for way, means in ways.items()),
            )

    def settle(self, traced: Traced) -> Traced:
        """What torch cannot decompose without an answer is answered as for the example, and asserted."""
        recording = traced.recording
        for _ in range(_MOST_QUESTIONS if recording is not None else 0):
            assert recording is not None
            question, decomposed = unbacked_program.asked_again(self.finish(traced))
            if not decomposed and not traced.loose_views and not recording.writes:
                # Most questions are whether a view is one at a batch of 1 too; a copy need not know.
                traced = dataclasses.replace(traced, loose_views=True)
                continue
            truth = None if question is None else recording.truth(question)
            if question is None or truth not in (sympy.true, sympy.false):
                break
            fact = question if truth == sympy.true else sympy.Not(question)
            traced = dataclasses.replace(traced, limits=(*traced.limits, Limit(fact, "")))
        return traced

    def finish(self, traced: Traced) -> Any:
        """The program as people get it."""
        recording = traced.recording
        if recording is None:
            return traced.program
        assertions = [unbacked_program.Assertion(x.fact, recording.text(x.fact), x.where) for x in traced.limits]
        return unbacked_program.finish(traced.program, recording, assertions, loose_views=traced.loose_views)

    def dims(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[tuple[int, int], str]]:
        """Every dim of the arguments: its place, and how people write it."""
        for index, (name, leaf) in enumerate(zip(self.names, concrete.leaves((args, kwargs)), strict=True)):
            for dim in range(len(getattr(leaf, "shape", ()))):
                yield (index, dim), f"{name}.shape[{dim}]"


_MOST_QUESTIONS = 16  # of torch's when it decomposes a program


def _pins(fact: sympy.Basic) -> sympy.Basic | None:
    """The size that a fact ties to a number beyond 0 and 1."""
    if isinstance(fact, sympy.Eq):
        for size, number in (fact.args, fact.args[::-1]):
            if size.is_Symbol and number.is_Integer and number > 1:
                return size
    return None


def _sizes(recording: Recording, fact: sympy.Basic) -> str:
    return ", ".join(
        f"{recording.symbols[s].text} = {recording.actuals[s]}" for s in sorted(fact.free_symbols, key=str)
    )


def _with_code(where: str) -> str:
    file, _, line = where.rpartition(":")
    code = linecache.getline(file, int(line)).strip() if line.isdigit() else ""
    return f"{where}\n           {code}" if code else where
