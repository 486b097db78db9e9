"""Inductor's choices.

Owns where random numbers come from, and three repairs: `SizeVarAllocator.evaluate_min` and `evaluate_max` pick one of
two sizes by what they can prove, fail where they can prove nothing, and in between take a common divisor for the
smaller one, which is wrong where a factor is 0 (sizevars.py says so itself, torch 2.13 and 2.15). The minimum itself
is an expression like any other. And `squeeze` keeps a dim that it cannot prove to be 1, in a program for sizes at which
it is (2.11 to 2.15): the dims are those of the trace. `split` counts no parts of nothing (2.11 to 2.15), where there is
one. And it hands on one fact that the C++ code would not use: divisibility.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import sympy
import torch
import torch._inductor.config as inductor_config
import torch._inductor.lowering as inductor_lowering
from torch._inductor.codegen.cpp import CppKernelProxy, LoopLevel
from torch._inductor.sizevars import SizeVarAllocator
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import Max, Min

from anyshape._torch import concrete, operators
from anyshape._torch.shape_env import FreeShapeEnv

_stock_min = SizeVarAllocator.evaluate_min
_stock_max = SizeVarAllocator.evaluate_max


def _choose(stock: Callable[..., Any], of: Any, smaller: bool) -> Callable[..., Any]:
    def choose(self: Any, left: Any, right: Any) -> Any:
        env = self.shape_env
        if not isinstance(env, FreeShapeEnv):
            return stock(self, left, right)
        left, right = sympy.sympify(left), sympy.sympify(right)
        if self.statically_known_leq(left, right):
            return left if smaller else right
        if self.statically_known_leq(right, left):
            return right if smaller else left
        return of(left, right)

    return choose


_stock_gt = SizeVarAllocator.statically_known_gt


def _is_longer(self: Any, left: Any, right: Any) -> bool:
    """How a loop is split (`n * m` over `n`, codegen/simd.py) is the same for all sizes, those of 0 and 1 too."""
    env = self.shape_env
    known = bool(_stock_gt(self, left, right))
    if known or not isinstance(env, FreeShapeEnv):
        return known
    longer = sympy.Gt(left, right)
    return env.recording.owns(longer) and env.settled_from_two(longer) == sympy.true


_stock_guard_int = SizeVarAllocator.guard_int


def _guard_int(self: Any, expr: Any) -> int:
    """A number that the code is for, of the parts of a split say: that of the capture, whatever it is planned for."""
    env = self.shape_env
    with env.as_captured() if isinstance(env, FreeShapeEnv) else contextlib.nullcontext():
        return _stock_guard_int(self, expr)


def _split(stock: Callable[..., Any]) -> Callable[..., Any]:
    """One part is the whole; of nothing there is one too, where Inductor counts none and fails."""

    def lower(x: Any, sizes: Any, dim: int = 0) -> Any:
        node = V.graph.current_node
        free = isinstance(V.graph.sizevars.shape_env, FreeShapeEnv) and node.target is torch.ops.aten.split.Tensor
        return [x] if free and len(node.meta["val"]) == 1 else stock(x, sizes, dim)

    return lower


def _squeeze(stock: Callable[..., Any]) -> Callable[..., Any]:
    def lower(x: Any, *dims: Any) -> Any:
        node = V.graph.current_node
        if not isinstance(V.graph.sizevars.shape_env, FreeShapeEnv) or node.target not in _SQUEEZES:
            return stock(x, *dims)
        left = [concrete.number_expr(n) for n in node.meta["val"].shape]
        kept: list[Any] = []
        for size, own in zip(node.args[0].meta["val"].shape, x.get_size(), strict=True):
            if len(kept) < len(left) and concrete.number_expr(size) == left[len(kept)]:
                kept.append(own)
        if len(kept) != len(left):
            return stock(x, *dims)
        return inductor_lowering.view(x, kept) if len(kept) < len(x.get_size()) else x

    return lower


_SQUEEZES = (torch.ops.aten.squeeze.default, torch.ops.aten.squeeze.dim, torch.ops.aten.squeeze.dims)
_stock_tile = getattr(LoopLevel, "tile", None)
_stock_codegen_functions = getattr(CppKernelProxy, "codegen_functions", None)
_arguments: contextvars.ContextVar[Any] = contextvars.ContextVar("the sizes a kernel is given", default=None)


def _codegen_functions(self: Any, *args: Any, **kwargs: Any) -> Any:
    token = _arguments.set(self.kernel_group.args.sizevars)
    try:
        assert _stock_codegen_functions is not None
        return _stock_codegen_functions(self, *args, **kwargs)
    finally:
        _arguments.reset(token)


def _tile(self: Any, factor: Any) -> Any:
    """A loop whose length is known to be a multiple of the tile has no remainder (codegen/cpp.py always makes one)."""
    assert _stock_tile is not None
    loop = _stock_tile(self, factor)
    sizes = V.graph.sizevars
    if getattr(sizes.shape_env, "knows_divisors", False):
        # In a kernel sizes go by the names of its arguments.
        own = {str(name): size for size, name in (_arguments.get() or {}).items()}
        size = loop.size.xreplace({s: own[s.name] for s in loop.size.free_symbols if s.name in own})
        if sizes.statically_known_multiple_of(size, factor):
            loop.tiled_size = loop.size
    return loop


@contextlib.contextmanager
def patches() -> Iterator[None]:
    """What Inductor does otherwise for a capture of anyshape's."""
    known = inductor_lowering.lowerings
    dropout = inductor_lowering.fallback_handler(operators.native_dropout, add_to_fallback_set=False)
    with (
        mock.patch.dict(known, {call: _squeeze(known[call]) for call in _SQUEEZES if call in known}),
        # Random numbers are eager's own: Inductor's generator gives others.
        inductor_config.patch(fallback_random=True),
        mock.patch.dict(known, {torch.ops.aten.native_dropout.default: dropout}),
        mock.patch.dict(known, {torch.ops.aten.split.Tensor: _split(known[torch.ops.aten.split.Tensor])}),
        mock.patch.object(SizeVarAllocator, "evaluate_min", _choose(_stock_min, Min, True)),
        mock.patch.object(SizeVarAllocator, "evaluate_max", _choose(_stock_max, Max, False)),
        mock.patch.object(SizeVarAllocator, "statically_known_gt", _is_longer),
        mock.patch.object(SizeVarAllocator, "guard_int", _guard_int),
        _divisibility(),
    ):
        yield


@contextlib.contextmanager
def _divisibility() -> Iterator[None]:
    """Without the methods that are replaced here the code has its remainders, and is right."""
    if _stock_tile is None or _stock_codegen_functions is None:
        yield
        return
    with (
        mock.patch.object(LoopLevel, "tile", _tile),
        mock.patch.object(CppKernelProxy, "codegen_functions", _codegen_functions),
    ):
        yield
