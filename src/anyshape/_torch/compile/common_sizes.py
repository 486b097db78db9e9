"""Compiling a captured graph for what several hot sizes share: a value, a divisor, a bound.

Owns what hot sizes have in common (a value, a divisor, a bound), how a captured graph is compiled with that as facts,
and which calls the code is for: those that answer all that was asked on the way as the sizes it was made with do.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import sympy
import torch
import torch.compiler.config as compiler_config
from torch._dynamo.source import ConstantSource
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy.numbers import int_oo

from anyshape._torch.compile.exact_sizes import Master, stand_in
from anyshape._torch.repairs import registry
from anyshape._torch.repairs.inductor import known_ranges, output_strides
from anyshape._torch.symbolic import python_code

DECLARED_IN = (known_ranges,)  # what holds while code is made for known ranges
_DIVISORS = (64, 32, 16, 8)  # what loads and stores of several elements need


@dataclasses.dataclass(frozen=True)
class Common:
    """What the values of one size have in common."""

    value: int | None  # all are this one
    divisor: int
    most: int  # a power of two that none exceeds
    least: int = 2

    @classmethod
    def of(cls, values: Sequence[int]) -> Common:
        shared = math.gcd(*values)
        divisor = next((d for d in _DIVISORS if shared and shared % d == 0), 1)
        most = 1 << max(0, max(values) - 1).bit_length()
        return cls(values[0] if len(set(values)) == 1 else None, divisor, most)

    def text(self, name: str) -> str:
        if self.value is not None:
            return f"{name} == {self.value}"
        return f"{name} <= {self.most}" + (f" and {name} % {self.divisor} == 0" if self.divisor > 1 else "")


@dataclasses.dataclass(frozen=True)
class Shared:
    """Compiled code, which keys it is for, and what they have in common."""

    run: Callable[..., Any]
    admits: Callable[[tuple[Any, ...]], bool]
    text: str
    other: Callable[[], Shared] | None = None  # makes code with other kernels, which may be the faster


def job(
    master: Master, backend: Any, names: Mapping[Any, str], keys: Sequence[tuple[Any, ...]]
) -> Callable[[], Shared] | None:
    """What compiles the graph for all that `keys` have in common; None where that says nothing."""
    places = master.places()
    found: dict[Any, Common] = {}
    for symbol, at in places.items():
        values = [key[at] for key in keys]
        if not all(type(v) is int for v in values):
            return None
        if min(values) < 2 and len(set(values)) > 1:
            return None  # 0 and 1 are what general code is for
        found[symbol] = Common.of(values)
    if all(c.value is None and c.divisor == 1 and c.most > 1024 for c in found.values()):
        return None
    text = " and ".join(dict.fromkeys(common.text(names[s]) for s, common in found.items() if s in names))
    return lambda: _compile(master, backend, found, keys[-1], text)


def _compile(master: Master, backend: Any, common: Mapping[Any, Common], key: tuple[Any, ...], text: str) -> Shared:
    places = master.places()
    made = compiled(master, backend, common, {symbol: key[places[symbol]] for symbol in common})
    return Shared(made.run, made.admits, text)


class Fact(Protocol):
    """What is known of one size."""

    @property
    def value(self) -> int | None: ...

    @property
    def least(self) -> int: ...

    @property
    def most(self) -> int | None: ...

    @property
    def divisor(self) -> int: ...


class FactsEnv(ShapeEnv):
    """The ShapeEnv of a graph that is compiled once more. What is learnt on the way is looked at for each key."""

    knows_divisors = True


@dataclasses.dataclass(frozen=True)
class Compiled:
    """Code, which keys it is for, and what it came to depend on besides the facts."""

    run: Callable[..., Any]
    admits: Callable[[tuple[Any, ...]], bool]
    learnt: tuple[Any, ...]
    kept_rows: bool  # whether rows are kept in registers where Inductor by itself would go over them again


def compiled(
    master: Master,
    backend: Any,
    facts: Mapping[Any, Fact],
    hints: Mapping[Any, int],
    *,
    tag: str = "",
    keeps_rows: bool = True,
) -> Compiled:
    """The graph compiled for all sizes that `facts` hold for, planned for `hints`; both by the symbols of the capture.

    The facts are ranges of symbols, which is what kernels are chosen by. What is found in a cache was made under the
    same `tag`.
    """
    env = FactsEnv(duck_shape=False)
    mode = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
    at = master.places()
    sizes = {e for v in master.placeholders if isinstance(v, torch.Tensor) for e in _expressions(v.shape)}
    own: dict[Any, Any] = {}
    for symbol, fact in facts.items():
        if fact.value is not None:
            own[symbol] = sympy.Integer(fact.value)
            continue
        create = env.create_symbol if symbol in sizes else env.create_unspecified_symbol
        own[symbol] = create(hints[symbol], ConstantSource(f"n{len(own)}"), DimDynamic.DYNAMIC)
    new = {symbol: f"v[{at[old]}]" for old, symbol in own.items() if symbol.is_Symbol}
    hinted = {symbol: hints[old] for old, symbol in own.items() if symbol.is_Symbol}

    def number(value: Any) -> Any:
        if not isinstance(value, torch.SymInt):
            return value
        expr = value.node.expr.xreplace(own)
        if expr.is_number:
            return int(expr)
        if not expr.free_symbols <= hinted.keys():  # an unbacked size
            return None
        return env.create_symintnode(expr, hint=int(expr.xreplace(hinted)))

    for old, fact in facts.items():
        if fact.value is None:
            env.constrain_symbol_range(own[old], fact.least, int_oo if fact.most is None else fact.most)
            size = env.create_symintnode(own[old], hint=hints[old])
            assert size % fact.divisor == 0  # asked, so that it is known and guarded
    given = set(_conditions(env, new))

    def tensor(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return number(value)
        return stand_in(mode, value, [number(n) for n in value.shape], [number(n) for n in value.stride()])

    noted: list[Any] | None = [] if keeps_rows else None
    planned = [hints[symbol].bit_length() for symbol in own]  # kernels are chosen by powers of two
    with (
        tracing(TracingContext(mode)),
        output_strides.kept(master.layouts, number),
        registry.entered("known ranges", noted=noted),
        compiler_config.patch(cache_key_tag=f"{compiler_config.cache_key_tag} {tag} {planned} {keeps_rows}"),
    ):
        run = master.compiled(backend, lambda: [tensor(v) for v in master.placeholders], _baked(master, own))
    conditions = _conditions(env, new)
    exact = [sympy.Eq(sympy.Symbol(f"v{at[old]}"), symbol) for old, symbol in own.items() if not symbol.is_Symbol]
    admits = _admits([*exact, *_layout(master, own), *conditions], new)
    old = {symbol: captured for captured, symbol in own.items()}
    return Compiled(run, admits, tuple(c.xreplace(old) for c in conditions if c not in given), bool(noted))


def _conditions(env: ShapeEnv, symbols: Iterable[Any]) -> list[Any]:
    """What the sizes must be for what is known to hold."""
    found = [g.expr for g in env.guards]
    for symbol in symbols:
        bounds = env.var_to_range[symbol]
        found += [sympy.Ge(symbol, bounds.lower)] if bounds.lower != -int_oo else []
        found += [sympy.Le(symbol, bounds.upper)] if bounds.upper != int_oo else []
    return [c for c in dict.fromkeys(found) if c not in (sympy.true, True)]


def _expressions(numbers: Sequence[Any]) -> list[Any]:
    return [n.node._expr for n in numbers if isinstance(n, torch.SymInt)]


def _baked(master: Master, own: Mapping[Any, Any]) -> list[Any]:
    """For each placeholder the number that takes its place, or None."""
    numbers = [v.node.expr.xreplace(own) if isinstance(v, torch.SymInt) else v for v in master.placeholders]
    return [int(n) if isinstance(n, (int, sympy.Integer)) else None for n in numbers]


def _layout(master: Master, own: Mapping[Any, Any]) -> list[Any]:
    """That strides are those that the code was made for."""
    found: list[Any] = []
    for value, start in master.in_key():
        if isinstance(value, torch.Tensor):
            strides = [n.node.expr.xreplace(own) if isinstance(n, torch.SymInt) else n for n in value.stride()]
            at = range(start + value.dim(), start + 2 * value.dim())
            places = [(i, sympy.sympify(s)) for i, s in zip(at, strides, strict=True)]
            found += [sympy.Eq(sympy.Symbol(f"v{i}"), s, evaluate=False) for i, s in places]
    return found


def _admits(conditions: Sequence[Any], places: Mapping[Any, str]) -> Callable[[tuple[Any, ...]], bool]:
    """Whether all conditions hold of a key; a symbol that is no key of `places` (`v3`) is a number of the key."""
    used = set().union(*(c.free_symbols for c in conditions)) if conditions else set()
    lines = [f"{symbol} = {places.get(symbol, f'v[{symbol.name[1:]}]')}" for symbol in used]
    held = python_code.compiled([*lines, "return " + " and ".join(_texts(conditions) or ["True"])], {})

    def admits(key: tuple[Any, ...]) -> bool:
        try:
            return bool(held(key))
        except ArithmeticError:  # `n // 0` has no answer
            return False

    return admits


def _texts(conditions: Sequence[Any]) -> list[str]:
    return [f"({python_code.expression(c)})" for c in conditions if c not in (sympy.true, True)]
