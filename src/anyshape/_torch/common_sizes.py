"""Code for sizes that have something in common, from a graph that was captured for all.

Owns what hot sizes have in common (a value, a divisor, a bound), how a captured graph is compiled with that as facts,
and which calls the code is for: those that answer all that was asked on the way as the sizes it was made with do.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch._dynamo.source import ConstantSource
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from anyshape._torch import output_strides, python_code
from anyshape._torch.specialise import Master, stand_in

_DIVISORS = (64, 32, 16, 8)  # what loads and stores of several elements need


@dataclasses.dataclass(frozen=True)
class Common:
    """What the values of one size have in common."""

    value: int | None  # all are this one
    divisor: int
    most: int  # a power of two that none exceeds

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
    env = ShapeEnv(duck_shape=False)
    mode = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
    at = master.places()
    sizes = {e for v in master.placeholders if isinstance(v, torch.Tensor) for e in _expressions(v.shape)}
    own: dict[Any, Any] = {}
    for symbol, fact in common.items():
        if fact.value is not None:
            own[symbol] = sympy.Integer(fact.value)
            continue
        create = env.create_symbol if symbol in sizes else env.create_unspecified_symbol
        own[symbol] = create(key[at[symbol]], ConstantSource(f"n{len(own)}"), DimDynamic.DYNAMIC)
    new = {symbol: f"v[{at[old]}]" for old, symbol in own.items() if symbol.is_Symbol}
    hints = {symbol: key[at[old]] for old, symbol in own.items() if symbol.is_Symbol}

    def number(value: Any) -> Any:
        if not isinstance(value, torch.SymInt):
            return value
        expr = value.node.expr.xreplace(own)
        if expr.is_number:
            return int(expr)
        return env.create_symintnode(expr, hint=int(expr.xreplace(hints)))

    for old, fact in common.items():
        if fact.value is None:  # asked, so that it is known and guarded
            size = env.create_symintnode(own[old], hint=key[at[old]])
            assert size <= fact.most and size % fact.divisor == 0

    def tensor(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return number(value)
        return stand_in(mode, value, [number(n) for n in value.shape], [number(n) for n in value.stride()])

    with tracing(TracingContext(mode)), output_strides.kept(master.layouts, number):
        run = master.compiled(backend, lambda: [tensor(v) for v in master.placeholders], _baked(master, own))
    conditions = [g.expr for g in env.guards]
    for symbol in new:
        bounds = env.var_to_range[symbol]
        conditions += [sympy.Ge(symbol, bounds.lower), sympy.Le(symbol, bounds.upper)]
    conditions = [c for c in dict.fromkeys(conditions) if c not in (sympy.true, True)]
    held = python_code.function([sympy.And(*conditions)] if conditions else [sympy.true], new)
    exact = [(at[old], int(symbol)) for old, symbol in own.items() if not symbol.is_Symbol]
    laid_out = _layout(master, own, new)

    def admits(other: tuple[Any, ...]) -> bool:
        return all(other[i] == n for i, n in exact) and bool(held(other)[0]) and laid_out(other)

    return Shared(run, admits, text)


def _expressions(numbers: Sequence[Any]) -> list[Any]:
    return [n.node._expr for n in numbers if isinstance(n, torch.SymInt)]


def _baked(master: Master, own: Mapping[Any, Any]) -> list[Any]:
    """For each placeholder the number that takes its place, or None."""
    numbers = [v.node.expr.xreplace(own) if isinstance(v, torch.SymInt) else v for v in master.placeholders]
    return [int(n) if isinstance(n, (int, sympy.Integer)) else None for n in numbers]


def _layout(master: Master, own: Mapping[Any, Any], new: dict[Any, str]) -> Callable[[tuple[Any, ...]], bool]:
    """Whether strides are those that the code was made for."""
    wanted: list[tuple[int, Any]] = []
    for value, start in master.in_key():
        if isinstance(value, torch.Tensor):
            strides = [n.node.expr.xreplace(own) if isinstance(n, torch.SymInt) else n for n in value.stride()]
            wanted += [(start + value.dim() + i, sympy.sympify(s)) for i, s in enumerate(strides)]
    evaluate = python_code.function([s for _, s in wanted], new) if wanted else lambda key: ()
    return lambda key: all(key[i] == n for (i, _), n in zip(wanted, evaluate(key), strict=True))
