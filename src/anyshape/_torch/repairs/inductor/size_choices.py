"""Lowering choices by size (`evaluate_min`, `squeeze`, `split`), made as the trace made them.

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
from collections.abc import Callable
from typing import Any

import sympy
import torch
import torch._inductor.lowering as inductor_lowering
from torch._inductor.codegen.cpp import CppKernelProxy, LoopLevel
from torch._inductor.sizevars import SizeVarAllocator
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import Max, Min

from anyshape._torch.fake_runs import concrete
from anyshape._torch.repairs import operators
from anyshape._torch.repairs.registry import repair
from anyshape._torch.symbolic.shape_env import FreeShapeEnv

_UNPROVED = "sizevars.py:evaluate_min and evaluate_max take a common divisor for the smaller size, or raise."


@repair(
    "torch._inductor.config:fallback_random",
    scope="compile",
    phase="lowering",
    kind="meaning",
    symptom="Random numbers are others than eager's.",
    cause="Inductor has a generator of its own.",
    cure="Random numbers are made by eager's kernels.",
    goes="never: it is what the contract says",
)
def settings() -> dict[str, Any]:
    return {"fallback_random": True}


@repair(
    "torch._inductor.lowering:lowerings[aten.native_dropout.default]",
    scope="compile",
    phase="lowering",
    broken="2.11-2.15",
    symptom="The results of dropout lie otherwise than eager's.",
    cause="lowering.py:native_dropout falls back to a kernel whose meta does not keep the strides of its input.",
    cure="An operator of anyshape's that does is called.",
    goes="when the meta of native_dropout keeps strides",
    adds=True,
)
def native_dropout(stock: Any) -> Any:
    return inductor_lowering.fallback_handler(operators.native_dropout, add_to_fallback_set=False)


@repair(
    "torch._inductor.sizevars:SizeVarAllocator.evaluate_min",
    scope="compile",
    phase="lowering",
    broken="2.11-2.15",
    symptom="Where a factor of a size is 0, the lesser of two sizes is the wrong one; or Inductor fails.",
    cause=_UNPROVED,
    cure="The minimum is an expression where nothing is proved.",
    goes="when evaluate_min gives an expression",
)
def evaluate_min(stock: Any) -> Any:
    return _choose(stock, Min, True)


@repair(
    "torch._inductor.sizevars:SizeVarAllocator.evaluate_max",
    scope="compile",
    phase="lowering",
    broken="2.11-2.15",
    symptom="Where a factor of a size is 0, the greater of two sizes is the wrong one; or Inductor fails.",
    cause=_UNPROVED,
    cure="The maximum is an expression where nothing is proved.",
    goes="when evaluate_max gives an expression",
)
def evaluate_max(stock: Any) -> Any:
    return _choose(stock, Max, False)


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


@repair(
    "torch._inductor.sizevars:SizeVarAllocator.statically_known_gt",
    scope="compile",
    phase="lowering",
    kind="speed",
    symptom="A loop over `n * m` is not split by `n`, because m may be 1.",
    cause="codegen/simd.py splits a loop where it is known to be longer.",
    cure="What holds for sizes from 2 on decides how a loop is split.",
    goes="when simd.py does not ask",
)
def _is_longer(self: Any, left: Any, right: Any) -> bool:
    """How a loop is split (`n * m` over `n`, codegen/simd.py) is the same for all sizes, those of 0 and 1 too."""
    env = self.shape_env
    known = bool(_stock_gt(self, left, right))
    if known or not isinstance(env, FreeShapeEnv):
        return known
    longer = sympy.Gt(left, right)
    return env.recording.owns(longer) and env.settled_from_two(longer) == sympy.true


_stock_guard_int = SizeVarAllocator.guard_int


@repair(
    "torch._inductor.sizevars:SizeVarAllocator.guard_int",
    scope="compile",
    phase="lowering",
    kind="meaning",
    symptom="Code is made for the parts that a planned size has, not for those of the call.",
    cause="sizevars.py:guard_int reads hints, which `hints=` may have set for planning.",
    cure="A number that code is for is that of the capture.",
    goes="when torch plans by other hints than it guards on",
)
def _guard_int(self: Any, expr: Any) -> int:
    """A number that the code is for, of the parts of a split say: that of the capture, whatever it is planned for."""
    env = self.shape_env
    with env.as_captured() if isinstance(env, FreeShapeEnv) else contextlib.nullcontext():
        return _stock_guard_int(self, expr)


@repair(
    "torch._inductor.lowering:lowerings[aten.split.Tensor]",
    scope="compile",
    phase="lowering",
    broken="2.11-2.15",
    symptom="`torch.zeros(0).split(2)` fails in Inductor.",
    cause="lowering.py:split counts no parts of nothing, where eager has one.",
    cure="One part is the whole.",
    goes="when lowering.py:split counts one part of nothing",
)
def _split(stock: Callable[..., Any]) -> Callable[..., Any]:
    """One part is the whole; of nothing there is one too, where Inductor counts none and fails."""

    def lower(x: Any, sizes: Any, dim: int = 0) -> Any:
        node = V.graph.current_node
        free = isinstance(V.graph.sizevars.shape_env, FreeShapeEnv) and node.target is torch.ops.aten.split.Tensor
        return [x] if free and len(node.meta["val"]) == 1 else stock(x, sizes, dim)

    return lower


@repair(
    "torch._inductor.lowering:lowerings[aten.squeeze.default]",
    "torch._inductor.lowering:lowerings[aten.squeeze.dim]",
    "torch._inductor.lowering:lowerings[aten.squeeze.dims]",
    scope="compile",
    phase="lowering",
    broken="2.11-2.15",
    symptom="Inductor fails for `x.squeeze(0)` at a size of 1: dims do not agree.",
    cause="lowering.py:squeeze keeps a dim that it cannot prove to be 1.",
    cure="The dims are those of the trace.",
    goes="when lowering.py:squeeze follows the traced result",
    absent="skip",
)
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


@repair(
    "torch._inductor.codegen.cpp:CppKernelProxy.codegen_functions",
    scope="compile",
    phase="codegen",
    kind="speed",
    symptom="A loop whose length is a multiple of the vector has a remainder.",
    cause="In a kernel sizes go by the names of its arguments, of which nothing is known.",
    cure="It is remembered which size an argument is.",
    goes="when CppKernelProxy uses facts about sizes",
    absent="skip",
    needed=lambda: _stock_tile is not None and _stock_codegen_functions is not None,
)
def _codegen_functions(self: Any, *args: Any, **kwargs: Any) -> Any:
    token = _arguments.set(self.kernel_group.args.sizevars)
    try:
        assert _stock_codegen_functions is not None
        return _stock_codegen_functions(self, *args, **kwargs)
    finally:
        _arguments.reset(token)


@repair(
    "torch._inductor.codegen.cpp:LoopLevel.tile",
    scope="compile",
    phase="codegen",
    kind="speed",
    symptom="A loop whose length is a multiple of the vector has a remainder.",
    cause="codegen/cpp.py:LoopLevel.tile always makes one.",
    cure="None is made where the length is known to be a multiple.",
    goes="when LoopLevel.tile asks",
    absent="skip",
    needed=lambda: _stock_tile is not None and _stock_codegen_functions is not None,
)
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
