"""Sizes of a call against a declaration.

Owns the checker: plain Python source written once for a declaration and for which of its tensors are present, since it
runs for each new key. It only says yes or no; a no is told in full by `explain`, which may be slow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

from anyshape.declaration.expression import (
    Clause,
    Expression,
    Name,
    Number,
    comparison_source,
    evaluate,
    linear_in,
    names,
    source,
)
from anyshape.declaration.place import Place
from anyshape.declaration.shape import Shape
from anyshape.errors import InvariantError


@dataclasses.dataclass(frozen=True)
class Binding:
    """The value of each name in one call. A name is missing where no tensor that has it was given."""

    sizes: Mapping[str, int]

    def __getitem__(self, name: str) -> int:
        return self.sizes[name]


@dataclasses.dataclass(frozen=True)
class Take:
    """A name and the dim its value is taken from: `coefficient * name + rest` is the size of that dim."""

    name: str
    shape: int
    position: int
    coefficient: int
    rest: Expression


@dataclasses.dataclass(frozen=True)
class Plan:
    """Which dims give the names their values, in an order that can be computed, and which dims are checked then."""

    takes: tuple[Take, ...]
    checks: tuple[tuple[int, int], ...]  # (shape, position)
    clauses: tuple[Clause, ...]
    unsolved: tuple[tuple[str, int, int], ...]  # a name that nothing gives a value, and a dim that has it


def plan(shapes: Sequence[Shape], clauses: Sequence[Clause], present: Sequence[bool]) -> Plan:
    dims = [
        (i, j, d.expr) for i, s in enumerate(shapes) if present[i] for j, d in enumerate(s.dims) if d.expr is not None
    ]
    takes: dict[str, Take] = {}
    for i, j, expr in dims:
        if isinstance(expr, Name) and expr.name not in takes:
            takes[expr.name] = Take(expr.name, i, j, 1, Number(0))
    # A name that never stands alone can still be told from `2*n+1`, once what else is in the expression is known.
    progress = True
    while progress:
        progress = False
        for i, j, expr in dims:
            unknown = [n for n in names(expr) if n not in takes]
            form = linear_in(expr, unknown[0]) if len(unknown) == 1 else None
            if form is not None and form[0] != 0:
                takes[unknown[0]] = Take(unknown[0], i, j, *form)
                progress = True
    taken = {(t.shape, t.position) for t in takes.values()}
    checks = tuple((i, j) for i, j, e in dims if (i, j) not in taken and all(n in takes for n in names(e)))
    unsolved = tuple((n, i, j) for i, j, e in dims for n in names(e) if n not in takes)
    known = tuple(c for c in clauses if all(n in takes for n in c.names))
    return Plan(tuple(takes.values()), checks, known, unsolved)


Checker: TypeAlias = Callable[..., "dict[str, int] | None"]


def compile_checker(shapes: Sequence[Shape], plan: Plan, present: Sequence[bool]) -> Checker:
    """A function of all the shapes, in order: the value of each name of `plan.takes`, or None for a no."""
    at = [i for i, p in enumerate(present) if p]
    lines = [f"def check({', '.join(f's{i}' for i in range(len(shapes)))}):"]
    for i in at:
        op = "<" if shapes[i].ellipsis is not None else "!="
        lines.append(f"    if len(s{i}) {op} {len(shapes[i].dims)}: return None")
    variables: dict[str, str] = {}
    for k, take in enumerate(plan.takes):
        dim = f"s{take.shape}[{shapes[take.shape].index(take.position)}]"
        rest = "" if take.rest == Number(0) else f" - {source(take.rest, variables)}"
        if take.coefficient == 1:
            lines.append(f"    n{k} = {dim}{rest}")
        else:
            lines.append(f"    n{k}, left = divmod({dim}{rest}, {take.coefficient})")
            lines.append("    if left: return None")
        if take.coefficient != 1 or rest:
            lines.append(f"    if n{k} < 0: return None")
        variables[take.name] = f"n{k}"
    for i, j in plan.checks:
        expr = shapes[i].dims[j].expr
        assert expr is not None
        lines.append(f"    if s{i}[{shapes[i].index(j)}] != {source(expr, variables)}: return None")
    for clause in plan.clauses:
        test = " and ".join(comparison_source(c, variables) for c in clause.comparisons)
        lines.append(f"    if not ({test}): return None")
    lines.append(f"    return {{{', '.join(f'{name!r}: {variable}' for name, variable in variables.items())}}}")
    scope: dict[str, Any] = {}
    # The source holds nothing of the user's but numbers, and names as text: as variables they are n0, n1, ...
    exec(compile("\n".join(lines), "<anyshape declaration>", "exec"), scope)
    return scope["check"]


def explain(shapes: Sequence[Shape], plan: Plan, sizes: Sequence[Sequence[int] | None]) -> NoReturn:
    """Raise the error for sizes that a checker said no to."""
    for shape, actual in zip(shapes, sizes, strict=True):
        if actual is not None and not shape.accepts_rank(len(actual)):
            _refuse_rank(shape, actual)
    for shape, actual in zip(shapes, sizes, strict=True):
        for j, dim in enumerate(shape.dims if actual is not None else ()):
            assert actual is not None
            if dim.value is not None and actual[shape.index(j)] != dim.value:
                _refuse_static(shape, j, actual)
    values: dict[str, int] = {}
    sites: dict[str, str] = {}
    for take in plan.takes:
        shape, actual = shapes[take.shape], sizes[take.shape]
        assert actual is not None
        size = actual[shape.index(take.position)]
        value, left = divmod(size - evaluate(take.rest, values), take.coefficient)
        if left or value < 0:
            site = shape.site(take.position, len(actual))
            what = f"{site} is {size}, and no {take.name} makes {shape.dims[take.position].text} that"
            raise InvariantError(
                what,
                where=_line(shape, actual, take.position),
                value=size,
                fix=_freed(shape, take.position),
                code="AS021",
            )
        values[take.name], sites[take.name] = value, shape.site(take.position, len(actual))
    for i, j in plan.checks:
        shape, actual = shapes[i], sizes[i]
        assert actual is not None
        _check_dim(shape, j, actual, values, sites)
    for clause in plan.clauses:
        if not clause.holds(values):
            _refuse_clause(clause, values, sites)
    raise AssertionError("the checker refused sizes in which nothing is wrong")


def _check_dim(
    shape: Shape, position: int, actual: Sequence[int], values: Mapping[str, int], sites: Mapping[str, str]
) -> None:
    dim, size = shape.dims[position], actual[shape.index(position)]
    assert dim.expr is not None
    site = shape.site(position, len(actual))
    if dim.name is not None:
        if size != values[dim.name]:
            what = f"{dim.name} is two sizes: {values[dim.name]} in {sites[dim.name]}, and {size} in {site}"
            fix = _replaced(shape, position, f"{dim.name}_{shape.path.root}")
            raise InvariantError(
                what, where=_line(shape, actual, position), value=size, before=values[dim.name], fix=fix, code="AS021"
            )
        return
    try:
        expected = evaluate(dim.expr, values)
    except ZeroDivisionError:
        expected = None
    if size != expected:
        given = ", ".join(f"{n} = {values[n]} ({sites[n]})" for n in names(dim.expr))
        right = "cannot be computed" if expected is None else f"is {expected}"
        what = f"{site} is {size}, but {dim.text} {right} with {given}"
        raise InvariantError(
            what, where=_line(shape, actual, position), value=size, fix=_freed(shape, position), code="AS021"
        )


def _refuse_rank(shape: Shape, actual: Sequence[int]) -> NoReturn:
    least = "at least " if shape.ellipsis is not None else ""
    count = len(shape.dims)
    dims, verb = f"{len(actual)} dim{'s' * (len(actual) != 1)}", "is" if count == 1 else "are"
    what = f"{shape.path} has {dims}, and {least}{count} {verb} declared"
    text = " ".join(d.text for d in shape.dims)
    if len(actual) > count:
        text = f"... {text}".strip()
    else:
        text = " ".join(d.text for d in shape.dims[count - len(actual) :]) or "()"
    raise InvariantError(what, where=_line(shape, actual), value=tuple(actual), fix=_pasted(shape, text), code="AS021")


def _refuse_static(shape: Shape, position: int, actual: Sequence[int]) -> NoReturn:
    dim, size = shape.dims[position], actual[shape.index(position)]
    what = f"{shape.site(position, len(actual))} is {size}, and {dim.value} is declared"
    raise InvariantError(
        what, where=_line(shape, actual, position), value=size, fix=_freed(shape, position), code="AS021"
    )


def _refuse_clause(clause: Clause, values: Mapping[str, int], sites: Mapping[str, str]) -> NoReturn:
    given = ", ".join(f"{n} = {values[n]} ({sites[n]})" for n in clause.names)
    sizes = "this size" if len(clause.names) == 1 else "these sizes"
    raise InvariantError(
        f"{clause.text} does not hold",
        where=", ".join(dict.fromkeys(sites[n] for n in clause.names)),
        value=given,
        fix=f'pass sizes for which it holds, or take "{clause.text}" out of where=[...] to allow {sizes}',
    )


def _line(shape: Shape, actual: Sequence[int], position: int | None = None) -> str:
    """The shape that came and the words it was declared in, with a dim of them marked."""
    sizes = ", ".join(map(str, actual)) + ("," if len(actual) == 1 else "")
    before = f'{shape.path} has shape ({sizes}), declared as shapes["{shape.path}"] = "'
    place = Place("shapes", shape.path.text, before, shape.text, '"')
    return place.marked(*(shape.span(position) if position is not None else ()))


def _pasted(shape: Shape, text: str) -> str:
    return f'shapes={{"{shape.path}": "{text}"}}'


def _replaced(shape: Shape, position: int, text: str) -> str:
    tokens = [text if j == position else d.text for j, d in enumerate(shape.dims)]
    if shape.ellipsis is not None:
        tokens.insert(shape.ellipsis, "...")
    return _pasted(shape, " ".join(tokens))


def _freed(shape: Shape, position: int) -> str:
    return _replaced(shape, position, "_")
