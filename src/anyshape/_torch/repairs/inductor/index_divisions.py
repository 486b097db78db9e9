"""Divisions in generated index expressions: by a size of 0, and simplified over loop ranges.

Owns those by a size in the code around kernels: `(n * n) // n` is evaluated for an n of 0 too, and is 0 then. (A
division of the function itself insists that its divisor is not 0: see `checked_arithmetic`.) And what the ranges of
loops settle in the places that they read and write: `(x0 + 256 * x1 + 256 * n * x2) // (256 * n)` is `x2` where x0 runs
to 256 and x1 to n. Inductor finds that where n is a number or, since 2.13, known to be 2 or more. For an n that may be
0 its kernels divide for every element and loops that could be one stay several, though a loop of no length reads
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

import sympy
from torch._inductor.codegen.common import PythonPrinter
from torch._inductor.sizevars import SizeVarAllocator
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from anyshape._torch.repairs.registry import repair
from anyshape._torch.symbolic.shape_env import FreeShapeEnv

_Ranges = Mapping[sympy.Symbol, sympy.Expr]
_stock: Callable[..., Any] = SizeVarAllocator._simplify_with_ranges


@repair(
    "torch._inductor.sizevars:SizeVarAllocator._simplify_with_ranges",
    scope="compile",
    phase="lowering",
    kind="speed",
    symptom="Kernels divide for every element, and loops that could be one stay several.",
    cause="sizevars.py:_simplify_with_ranges settles divisions by sizes that are known to be 2 or more, and no others.",
    cure="Divisions are done that the ranges of loops settle, a size of 0 among them: nothing is read then.",
    goes="when Inductor reasons from the ranges of loops alone",
)
def _simplify_with_ranges(self: Any, expr: Any, var_ranges: _Ranges) -> Any:
    expr = _stock(self, expr, var_ranges)
    env = self.shape_env
    if not isinstance(env, FreeShapeEnv) or not expr.has(FloorDiv, ModularIndexing):
        return expr
    ranges = {v: sympy.sympify(size) for v, size in var_ranges.items()}
    factors = {f for size in ranges.values() for f in _factors(size)}
    positive = {f for f in factors if f in env.var_to_range and env.var_to_range[f].lower >= 0}
    simpler = divided(expr, ranges, positive)
    return expr if simpler == expr else self._simplify_with_ranges(simpler, var_ranges)


def divided(expr: Any, ranges: _Ranges, positive: Set[sympy.Symbol]) -> Any:
    """The same number wherever each variable is within its range, with the divisions done that can be.

    `positive` are sizes: where a loop runs, no factor of its length is 0.
    """

    def quotient(base: Any, divisor: Any) -> Any:
        whole, rest = _split(base, divisor)
        return whole if base.free_symbols & ranges.keys() and within(rest, divisor) else FloorDiv(base, divisor)

    def remainder(base: Any, divisor: Any, modulus: Any) -> Any:
        whole = quotient(base, divisor)
        if whole.func is FloorDiv:
            return ModularIndexing(base, divisor, modulus)
        _, rest = _split(whole, modulus)
        return rest if within(rest, modulus) else ModularIndexing(whole, 1, modulus)

    def within(rest: Any, limit: Any) -> bool:
        """Whether `0 <= rest < limit`. Nothing in `rest` is negative, so it is greatest where all of it is."""
        most = rest.xreplace({v: size - 1 for v, size in ranges.items()})
        room = sympy.expand((limit - 1 - most).xreplace({s: s + 1 for s in positive}))
        return _counts(rest, {*ranges, *positive}) and _counts(room, positive)

    return expr.replace(ModularIndexing, remainder).replace(FloorDiv, quotient)


def _split(base: Any, divisor: Any) -> tuple[Any, Any]:
    """`whole` and `rest` of `base == whole * divisor + rest`: terms that have the divisor as a factor, and others."""
    ratios = {term: term / divisor for term in sympy.Add.make_args(sympy.expand(base))}
    whole = {term for term, ratio in ratios.items() if ratio.as_numer_denom()[1] == 1}
    return sympy.Add(*(ratios[t] for t in whole)), sympy.Add(*(t for t in ratios if t not in whole))


def _counts(expr: Any, of: Set[sympy.Symbol]) -> bool:
    """Whether it is a sum of products of these and of numbers, none negative."""
    terms = sympy.Add.make_args(expr)
    return all(f in of or (f.is_Integer and f >= 0) for term in terms for f in _factors(term))


def _factors(product: Any) -> list[Any]:
    factors = sympy.Mul.make_args(product)
    return [f.base if f.is_Pow and f.exp.is_Integer and f.exp > 0 else f for f in factors]


_stock_print: Callable[..., str] = PythonPrinter._print_FloorDiv


@repair(
    "torch._inductor.codegen.common:PythonPrinter._print_FloorDiv",
    scope="compile",
    phase="codegen",
    broken="2.11-2.15",
    symptom="A call at a size of 0 raises ZeroDivisionError in the code around kernels, for `(n * n) // n`.",
    cause="codegen/common.py:PythonPrinter._print_FloorDiv writes a division that is evaluated for an n of 0 too.",
    cure="The divisor is written `n or 1`: a quotient by 0 is that of nothing, and is 0.",
    goes="when Inductor does not evaluate quotients by a size of 0",
)
def _print_floor_div(self: Any, expr: Any) -> str:
    if type(self) is not PythonPrinter or expr.args[1].is_number:  # others are for code of kernels
        return _stock_print(self, expr)
    base, divisor = map(self.doprint, expr.args)
    return f"(({base}) // (({divisor}) or 1))"
