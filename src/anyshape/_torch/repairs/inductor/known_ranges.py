"""Kernels for sizes of known range and divisor: persistent reductions, 32-bit size arguments.

Owns persistent reductions over rows of bounded length, 32-bit size arguments of Triton kernels, and divisors that
reach a kernel's signature. Whether code made so is faster than the general program's is found by running both.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import sympy
import torch._inductor.config as inductor_config
from torch._dynamo.source import ConstantSource
from torch._inductor.runtime.hints import ReductionHint
from torch._inductor.sizevars import SizeVarAllocator
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy.functions import Mod
from torch.utils._sympy.value_ranges import ValueRangeError, bound_sympy

from anyshape._torch.repairs.registry import repair

_LONGEST = 8192  # values of a row: 32 a thread of 256
_MOST = 2**31 - 1
_MANY_SYMBOLS = 20  # sympy takes too long then, and torch asks nothing


@repair(
    "torch._inductor.choices:InductorChoices.should_use_persistent_reduction",
    scope="known ranges",
    phase="lowering",
    kind="speed",
    absent="skip",
    symptom="Rows of more than 1,024 values are read once for each reduction and once more for the result.",
    cause="choices.py:InductorChoices.should_use_persistent_reduction has one limit, whatever is known of a length.",
    cure="Contiguous rows of bounded length are kept in registers up to 8,192 values.",
    goes="when Inductor takes the bounds of a length into account",
)
def _should_use_persistent_reduction(stock: Callable[[Any, bool], bool], *, noted: list[Any] | None) -> Any:
    if noted is None:  # code without them is wanted
        return stock

    def chosen(features: Any, cooperative_reduction: bool) -> bool:
        if stock(features, cooperative_reduction):
            return True
        in_blocks = getattr(features, "strict_reduction_rblock", lambda: None)() is not None
        if cooperative_reduction or in_blocks or not inductor_config.triton.persistent_reductions:
            return False
        if features.get_reduction_hint() != ReductionHint.INNER:
            return False
        if not V.graph.sizevars.statically_known_leq(features.reduction_numel, _LONGEST):
            return False
        noted.append(features.reduction_numel)
        return True

    return staticmethod(chosen)


# -- size arguments ------------------------------------------------------------------------------------------------

_wide: weakref.WeakSet[Any] = weakref.WeakSet()  # kernels in which a product of sizes may not fit into 32 bits


@repair(
    "torch._inductor.codegen.triton:TritonKernel.indexing",
    scope="known ranges",
    phase="codegen",
    kind="speed",
    absent="skip",
    symptom="Quotients and remainders by a size are 64-bit divisions, several times slower.",
    cause="codegen/triton_utils.py:signature_to_meta makes every size argument 64 bits wide.",
    cure="Each expression of a kernel is looked at: whether all products of sizes in it fit.",
    goes="when signature_to_meta takes the bounds of sizes into account",
)
def _indexing(stock: Any) -> Any:
    @functools.wraps(stock)
    def indexing(self: Any, index: Any, *args: Any, **kwargs: Any) -> Any:
        if self not in _wide and not _fits(index, V.graph.sizevars.shape_env.var_to_range):
            _wide.add(self)
        return stock(self, index, *args, **kwargs)

    return indexing


@repair(
    "torch._inductor.codegen.triton:signature_to_meta",
    scope="known ranges",
    phase="codegen",
    kind="speed",
    absent="skip",
    symptom="Quotients and remainders by a size are 64-bit divisions, several times slower.",
    cause="codegen/triton_utils.py:signature_to_meta makes every size argument 64 bits wide.",
    cure="They are 32 bits wide where all that is computed of sizes in the kernel fits.",
    goes="when signature_to_meta takes the bounds of sizes into account",
)
def _signature_to_meta(stock: Any) -> Any:
    @functools.wraps(stock)
    def meta(signature: Any, *args: Any, **kwargs: Any) -> Any:
        made = stock(signature, *args, **kwargs)
        if kwargs.get("size_dtype") != "tl.int32" or kwargs.get("is_template") or V.kernel in _wide:
            return made
        ranges = V.graph.sizevars.shape_env.var_to_range
        sizes = {a.name: a.expr for a in signature if getattr(a, "name", "").startswith("ks") and hasattr(a, "expr")}
        narrow = {n for n, expr in sizes.items() if isinstance(expr, sympy.Expr) and _fits(expr, ranges)}
        return {name: "i32" if name in narrow and kind == "i64" else kind for name, kind in made.items()}

    return meta


def _fits(index: Any, ranges: Mapping[Any, Any]) -> bool:
    """Whether all sums and products of sizes in an expression fit into 32 bits; other symbols count elements."""
    if not isinstance(index, sympy.Expr):
        return True
    for part in sympy.preorder_traversal(index):
        own = [a for a in part.args if a.free_symbols <= ranges.keys()]
        whole = part.func(*own) if isinstance(part, (sympy.Add, sympy.Mul)) and own else part
        if whole.free_symbols and whole.free_symbols <= ranges.keys() and not _is_narrow(whole, ranges):
            return False
    return True


def _is_narrow(expr: Any, ranges: Mapping[Any, Any]) -> bool:
    try:
        bounds = bound_sympy(expr, {s: ranges[s] for s in expr.free_symbols})
    except ValueRangeError:  # of a form that generated code does not have
        return False
    return bool(bounds.lower >= -_MOST and bounds.upper <= _MOST)


# -- divisors ------------------------------------------------------------------------------------------------------


@functools.cache
def _divisors_are_missed() -> bool:
    env = ShapeEnv(duck_shape=False)
    symbol = env.create_symbol(32, ConstantSource("n"), DimDynamic.DYNAMIC)
    known = env.create_symintnode(symbol, hint=32) % 16 == 0
    return bool(known) and not SizeVarAllocator(env).statically_known_multiple_of(symbol, 16)


@repair(
    "torch._inductor.sizevars:SizeVarAllocator.statically_known_multiple_of",
    scope="compile",
    phase="lowering",
    kind="speed",
    absent="skip",
    symptom="Loads and stores are not vectorized where a size is known to be a multiple of 16.",
    cause="sizevars.py:SizeVarAllocator.statically_known_multiple_of asks about sympy's Mod; what was learnt is about "
    "torch's own.",
    cure="It asks about torch's own too.",
    goes="with torch 2.11",
    needed=_divisors_are_missed,
)
def _statically_known_multiple_of(stock: Any) -> Any:
    @functools.wraps(stock)
    def known(self: Any, numerator: Any, denominator: Any) -> bool:
        if stock(self, numerator, denominator):
            return True
        symbols = getattr(numerator, "free_symbols", ())
        if not symbols or len(symbols) > _MANY_SYMBOLS:
            return False
        factors = [f for f in sympy.Mul.make_args(numerator) if f.free_symbols and f.is_integer]
        return any(self.statically_known_true(sympy.Eq(Mod(f, denominator), 0)) for f in factors)

    return known
