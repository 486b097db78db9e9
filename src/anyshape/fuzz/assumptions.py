"""Whether what a program assumes is checked.

Owns the test of assumptions: each predicate and requirement of each program gets sizes that break it, found by z3; the
call with those sizes must raise what eager raises, or be served by something else than that program. What is exported
or precompiled from the same calls must raise, or do what eager does. What is assumed of numbers that come out of the
data is broken by other data: where eager raises, so must the program.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import dataclasses
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from anyshape import compiler, exports, testing
from anyshape._torch.comparison import stock
from anyshape.errors import Error, NotCompilableError, missing
from anyshape.fuzz import inputs, known
from anyshape.fuzz.case import NUMBER, Case
from anyshape.fuzz.oracle import Target, function, tolerance_of
from anyshape.fuzz.worker import static_difference
from anyshape.programs import Program

LARGEST = 40  # a size of a violating call
DATA = 10  # seeds of data for the sizes of each call
Sizes = tuple[tuple[str, int], ...]
WAYS = ("compile", "export", "precompile")
_HOLDS = ("raised", "dispatched", "right", "known")


@dataclasses.dataclass(frozen=True)
class Check:
    """One assumption, the sizes that break it, and what became of the call."""

    assumption: str
    sizes: Sizes
    outcome: str  # raised | dispatched | right (of what was made ahead) | known (a fault of torch's) | served | differs
    text: str = ""

    @property
    def holds(self) -> bool:
        return self.outcome in _HOLDS


class _Unreadable(Exception):
    """An assumption about something else than sizes of inputs."""


def check(case: Case, backend: str, through: str = "compile") -> list[Check]:
    """Break every assumption of every program that the calls of a case compile, in what was made `through` one way."""
    if through not in WAYS:
        known = ", ".join(WAYS)
        raise NotCompilableError(
            f"{through!r} is not one of {known}", value=through, fix="--through compile", code="AS007"
        )
    fn = function(case)
    torch.compiler.reset()
    found = []
    with warnings.catch_warnings(), stock.measuring():
        warnings.simplefilter("ignore")
        compiled: Any = compiler.compile(fn, backend=backend if through == "compile" else "aot_eager")
        for call in case.calls:
            testing.run_once(compiled, inputs.arguments(case, call), backward=case.backward)
        broken = [
            (program, assumption, sizes)
            for program in compiled.programs
            for assumption in _assumptions(program)
            if (sizes := violating(case, assumption)) is not None
        ]
        by_data = "data" in case.families
        made = _made_ahead(case, fn, through) if (broken or by_data) and through != "compile" else None
        for program, assumption, sizes in broken:
            if through == "compile":
                found.append(_break(case, fn, compiled, program, assumption, sizes))
            elif made is not None:
                found.append(_break_ahead(case, fn, made, assumption, sizes, through))
        called = compiled if through == "compile" else made
        if by_data and called is not None:
            found += _break_by_data(case, fn, called, backward=case.backward and through != "export")
    return found


def line(checks: Sequence[Check]) -> str:
    counts = collections.Counter(c.outcome for c in checks)
    told = ", ".join(f"{counts[o]} {o}" for o in (*_HOLDS, "served", "differs"))
    return f"{len(checks)} assumptions broken: {told}"


def _assumptions(program: Program) -> Iterator[str]:
    yield from (p.text for p in program.predicates)
    yield from program.requirements


def _break(case: Case, fn: Any, compiled: Any, program: Program, assumption: str, sizes: dict[str, int]) -> Check:
    named, arguments = _violating_call(case, sizes)
    before = _calls(compiled, program)
    want = testing.run_once(fn, testing.copies(arguments), backward=case.backward)
    got = testing.run_once(compiled, testing.copies(arguments), backward=case.backward)
    if want.error is not None and type(want.error) is type(got.error):
        return Check(assumption, named, "raised")
    found = _difference(case, assumption, named, want, got)
    if found is not None:
        return found
    return Check(assumption, named, "served" if _calls(compiled, program) > before else "dispatched")


def _calls(compiled: Any, program: Program) -> int:
    """Calls that a program has served; one that serves more sizes may have taken its place since."""
    alike = lambda p: (p.name, p.line, p.predicates, p.requirements)
    return sum(p.calls for p in compiled.programs if alike(p) == alike(program))


def _made_ahead(case: Case, fn: Any, through: str) -> Callable[..., Any] | None:
    """What is called in the place of the function; None if it cannot be made, which is said to whoever makes it."""
    calls = [inputs.arguments(case, call) for call in case.calls]
    try:
        if through == "export":
            return exports.export(fn, calls[0], behaviors="all")  # type: ignore[no-any-return]
        from anyshape.ahead.loading import load
        from anyshape.ahead.precompile import precompile

        with contextlib.nullcontext() if case.backward else torch.no_grad():
            return load(precompile(fn, calls=calls))  # type: ignore[no-any-return]
    except (Error, RuntimeError, TypeError, ValueError, IndexError, AssertionError):
        return None


def _break_ahead(
    case: Case, fn: Any, made: Callable[..., Any], assumption: str, sizes: dict[str, int], through: str
) -> Check:
    named, arguments = _violating_call(case, sizes)
    backward = case.backward and through == "precompile"
    want = testing.run_once(fn, testing.copies(arguments), backward=backward)
    got = testing.run_once(made, testing.copies(arguments), backward=backward)
    if got.error is not None:
        return Check(assumption, named, "raised")
    return _difference(case, assumption, named, want, got) or Check(assumption, named, "right")


def _break_by_data(case: Case, fn: Any, called: Callable[..., Any], *, backward: bool) -> Iterator[Check]:
    """The sizes of each call with other data; those that eager takes break nothing, and are told where they differ."""
    for call, seed in itertools.product(case.calls, range(DATA)):
        arguments = inputs.arguments(case, dataclasses.replace(call, seed=seed))
        want = testing.run_once(fn, testing.copies(arguments), backward=backward)
        got = testing.run_once(called, testing.copies(arguments), backward=backward)
        if want.error is not None and got.error is not None:
            yield Check(f"data of seed {seed}", call.sizes, "raised")
        elif (found := _difference(case, f"data of seed {seed}", call.sizes, want, got)) is not None:
            yield found


def _difference(case: Case, assumption: str, named: Sizes, want: Any, got: Any) -> Check | None:
    tolerance = tolerance_of(case, "inductor")
    text = testing.outcome_difference(want, got, tolerance, tolerance)
    if text is None:
        return None
    alone = dataclasses.replace(case, calls=(dataclasses.replace(case.calls[0], sizes=named),))
    fault = known.name(alone, static_difference(alone, Target(backend="inductor")))
    return Check(assumption, named, "differs" if fault is None else "known", fault or text)


def _violating_call(case: Case, sizes: dict[str, int]) -> tuple[Sizes, tuple[Any, ...]]:
    named = tuple(sizes.items())
    return named, inputs.arguments(case, dataclasses.replace(case.calls[0], sizes=named))


# -- sizes that break an assumption ----------------------------------------------------------------------------


def violating(case: Case, assumption: str) -> dict[str, int] | None:
    """Sizes of the case's dims at which `assumption` is false; None if it is about more than dims, or always true."""
    try:
        import z3
    except ImportError as error:
        raise missing("z3-solver", needed_for="breaking assumptions", extra="solver") from error

    first = dict(case.calls[0].sizes)
    dims = {d: z3.Int(d) for d in first}
    used: set[str] = set()

    def size(name: str, index: int | None) -> Any:
        declared = next((i for i in case.inputs if i.name == name), None)
        if declared is None or (index is None) != (declared.dtype == NUMBER):
            raise _Unreadable(name)
        dim = declared.dims[index or 0]
        used.add(dim)
        return dims[dim]

    try:
        formula = _translate(ast.parse(_plain(assumption), mode="eval").body, size)
    except (_Unreadable, SyntaxError, IndexError):
        return None
    solver = z3.Solver()
    solver.set("timeout", 2000)
    solver.add(z3.Not(formula), *(z3.And(d >= 0, d <= LARGEST) for d in dims.values()))
    solver.add(*(dims[d] == n for d, n in first.items() if d not in used))
    if solver.check() != z3.sat:
        return None
    model = solver.model()
    return {d: model.eval(v, model_completion=True).as_long() for d, v in dims.items()}


def _plain(text: str) -> str:
    for name in ("ToFloat", "TruncToInt", "Identity"):  # between numbers of one value
        text = text.replace(f"{name}(", "(")
    return text


_COMPARED = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}
_COMPUTED = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a / b,  # z3's division of integers is Python's where the divisor is positive
    ast.Mod: lambda a, b: a % b,
}


def _translate(node: ast.AST, size: Any) -> Any:
    import z3

    again = lambda n: _translate(n, size)
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            return z3.And(*map(again, values))
        case ast.BoolOp(op=ast.Or(), values=values):
            return z3.Or(*map(again, values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return z3.Not(again(operand))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -again(operand)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARED:
            return _COMPARED[type(op)](again(left), again(right))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _COMPUTED:
            return _COMPUTED[type(op)](again(left), again(right))
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=2)):
            return again(left) * again(left)
        case ast.Call(func=ast.Name(id="Min"), args=[a, b]):
            return z3.If(again(a) <= again(b), again(a), again(b))
        case ast.Call(func=ast.Name(id="Max"), args=[a, b]):
            return z3.If(again(a) >= again(b), again(a), again(b))
        case ast.Call(func=ast.Name(id="Mod" | "PythonMod"), args=[a, b]):
            return again(a) % again(b)
        case ast.Constant(value=int() | float() as value) if int(value) == value:
            return z3.IntVal(int(value))
        case ast.Subscript(
            value=ast.Attribute(value=ast.Name(id=name), attr="shape"), slice=ast.Constant(value=int() as index)
        ):
            return size(name, index)
        case ast.Name(id=name):
            return size(name, None)
    raise _Unreadable(ast.unparse(node))
