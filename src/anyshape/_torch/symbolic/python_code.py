"""Sympy expressions of sizes as generated Python functions of ints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sympy
from torch.fx.experimental.symbolic_shapes import SYMPY_INTERP
from torch.utils._sympy.printers import PythonPrinter

_PRINTER = PythonPrinter()
_PLAIN_NAMES = {"bool", "min", "max", "abs", "int", "float", "round"}


def expression(expr: sympy.Basic) -> str:
    """The Python text of one expression; its symbols are the names of ints."""
    return str(_PRINTER.doprint(expr))


_DIVISIONS = ("FloorDiv", "CleanDiv", "CeilDiv", "Mod", "PythonMod", "IntTrueDiv", "FloatTrueDiv")


def is_division(expr: sympy.Basic) -> bool:
    return type(expr).__name__ in _DIVISIONS


def divisors(expr: sympy.Basic) -> list[sympy.Basic]:
    """What is divided by and is no number, the innermost first."""
    found: dict[sympy.Basic, None] = {}
    for part in sympy.postorder_traversal(expr):
        if is_division(part):
            found[part.args[1]] = None
        elif isinstance(part, sympy.Pow) and part.exp.is_number and part.exp < 0:
            found[part.base] = None
    return [d for d in found if not d.is_number]


def undefined_where(expr: sympy.Basic) -> list[sympy.Basic]:
    """Facts any of which leaves an expression without a value: something is divided by 0, or has no logarithm."""
    found = [sympy.Eq(d, 0) for d in divisors(expr)]
    partial = ("OpaqueUnaryFn_log", "OpaqueUnaryFn_log2", "OpaqueUnaryFn_sqrt")
    found += [sympy.Le(e.args[0], 0) for e in sympy.postorder_traversal(expr) if type(e).__name__ in partial]
    return [fact for fact in found if fact != sympy.false]


def function(
    exprs: Sequence[sympy.Basic], names: dict[sympy.Symbol, str]
) -> Callable[[Sequence[int]], tuple[Any, ...]]:
    """One function that evaluates all `exprs`; `names` tells where in its argument `v` each symbol stands."""
    used = set().union(*(e.free_symbols for e in exprs)) if exprs else set()
    lines = [f"    {symbol} = {place}" for symbol, place in names.items() if symbol in used]
    body = "".join(f"{expression(e)}, " for e in exprs)
    source = "def evaluate(v):\n" + "\n".join([*lines, f"    return ({body})"])
    scope: dict[str, Any] = dict(SYMPY_INTERP)
    exec(source, scope)
    evaluate = scope["evaluate"]
    if len(exprs) == 1:
        return lambda v: _or_none(evaluate, v)

    def all_of_them(v: Sequence[Any]) -> tuple[Any, ...]:
        try:
            return evaluate(v)  # type: ignore[no-any-return]
        except ArithmeticError:
            return tuple(function([e], names)(v)[0] for e in exprs)

    return all_of_them


def _source(body: Iterable[str]) -> str:
    return "def evaluate(v):\n" + "".join(f"    {line}\n" for part in body for line in part.split("\n"))


def compiled(body: Iterable[str], names: Mapping[str, Any]) -> Callable[[Sequence[Any]], int]:
    """A function of `v` with these lines, which may use what printed expressions do, and `names`."""
    scope = {**SYMPY_INTERP, **names}
    exec(_source(body), scope)
    return scope["evaluate"]  # type: ignore[no-any-return]


def text(body: Iterable[str]) -> str:
    """A function of `v` with these lines, as text that can do without sympy; "" where it cannot."""
    source = _source(body)
    scope: dict[str, Any] = {}
    exec(source, scope)
    return source if set(scope["evaluate"].__code__.co_names) <= _PLAIN_NAMES else ""


def _or_none(evaluate: Callable[[Sequence[Any]], tuple[Any, ...]], v: Sequence[Any]) -> tuple[Any, ...]:
    """A question that has no answer at some sizes (`n % 0`) is answered None there."""
    try:
        return evaluate(v)
    except ArithmeticError:
        return (None,)
