"""Lowerings that specialize on sizes (adaptive pooling, convolutions, `glu`), made for symbolic ones.

Owns what free sizes get instead. `adaptive_avg_pool2d` and `adaptive_max_pool2d` are unrolled over their windows:
eager's kernel is called, which has none to unroll. So it is for a convolution whose weight has free sizes, and for the
gradient of one that has any; where there is such a weight, nothing is laid out channels last for the others either.
`glu` halves a size: halves of any size are slices too. A slice whose bounds may lie beyond its dim is taken for one of
a size out of the data (2.11): it is cut as eager cuts it. Code for an exact size is Inductor's own.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import sympy
import torch
import torch._inductor.graph as inductor_graph
import torch._inductor.lowering as inductor_lowering
from torch._inductor import ir
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._sympy.functions import FloorDiv, Max, Min

from anyshape._torch.fake_runs import concrete
from anyshape._torch.repairs import operators
from anyshape._torch.repairs.registry import repair
from anyshape._torch.symbolic.shape_env import FreeShapeEnv

_aten = torch.ops.aten
_TELLS_SLICES = "_register_unbacked_slice_size_bindings"  # came with bounds that are clamped


_PINS = "asks for sizes as numbers, and pins them"


@repair(
    "torch._inductor.lowering:lowerings[aten._adaptive_avg_pool2d]",
    "torch._inductor.lowering:lowerings[aten._adaptive_avg_pool2d.default]",
    "torch._inductor.lowering:lowerings[aten.adaptive_max_pool2d]",
    "torch._inductor.lowering:lowerings[aten.adaptive_max_pool2d.default]",
    scope="compile",
    phase="lowering",
    broken="2.11-2.15",
    symptom="A program for each size of an image that is pooled adaptively.",
    cause=f"lowering.py:_adaptive_avg_pool2d and adaptive_max_pool2d, unrolled over windows, {_PINS}.",
    cure="For free sizes eager's kernel is called.",
    goes="when they are lowered for symbolic sizes",
    absent="skip",
)
def adaptive_pool2d(stock: Any, op: Any) -> Any:
    name = getattr(op, "overloadpacket", op).__name__.strip("_")
    kernel = getattr(inductor_lowering, f"fallback_{name}", None)
    return stock if kernel is None else _of_any_size(stock, kernel)


@repair(
    "torch._inductor.lowering:lowerings[aten.glu]",
    "torch._inductor.lowering:lowerings[aten.glu.default]",
    scope="compile",
    phase="lowering",
    broken="2.11-2.15",
    symptom="A program for each size that `F.glu` halves.",
    cause=f"lowering.py:glu {_PINS}.",
    cure="Halves of any size are slices.",
    goes="when glu is lowered for symbolic sizes",
    absent="skip",
)
def glu(stock: Any) -> Any:
    return _of_any_size(stock, _glu)


@repair(
    "torch._inductor.lowering:lowerings[aten.convolution.default]",
    scope="compile",
    phase="lowering",
    broken="2.11-2.15",
    symptom="A program for each size of a convolution's weight.",
    cause=f"kernel/conv.py:convolution {_PINS}, of the weight.",
    cure="For a weight of free sizes eager's kernel is called.",
    goes="when kernel/conv.py has a general kernel",
    absent="skip",
)
def convolution(stock: Any) -> Any:
    return _of_any_size(stock, _convolution, asked=1)


@repair(
    "torch._inductor.lowering:lowerings[aten.adaptive_max_pool2d_backward.default]",
    scope="compile",
    phase="lowering",
    broken="2.11-2.15",
    symptom="The gradient of adaptive maxima lies otherwise than eager's.",
    cause="lowering.py makes it a fallback, whose meta has strides of its own.",
    cure="An operator of anyshape's is called, which lays out its result as the trace has it.",
    goes="when its meta kernel has eager's strides",
    absent="skip",
)
def adaptive_max_pool2d_backward(stock: Any) -> Any:
    return _of_any_size(stock, _adaptive_max_pool2d_backward, asked=1)


def _of_any_size(stock: Callable[..., Any], general: Callable[..., Any], asked: int = 0) -> Callable[..., Any]:
    """`asked` is the argument whose sizes Inductor pins."""

    def lower(*args: Any) -> Any:
        free = any(sympy.sympify(size).free_symbols for size in args[asked].get_size())
        if free and isinstance(V.graph.sizevars.shape_env, FreeShapeEnv):
            return general(*args)
        return stock(*args)

    return lower


def _glu(x: Any, dim: int = -1) -> Any:
    known = inductor_lowering.lowerings
    dim = dim + len(x.get_size()) if dim < 0 else dim
    size = x.get_size()[dim]
    half = FloorDiv(size, 2)
    first, second = (known[_aten.slice.Tensor](x, dim, *ends) for ends in ((0, half), (half, size)))
    return known[_aten.mul.Tensor](first, known[_aten.sigmoid.default](second))


@repair(
    "torch._inductor.lowering:lowerings[aten.slice.Tensor]",
    scope="compile",
    phase="lowering",
    broken="2.11",
    symptom="A slice whose bounds may lie beyond its dim is taken for one of a size out of the data, and fails.",
    cause="lowering.py:slice_ does not clamp bounds that are symbolic.",
    cure="It is cut as eager cuts it.",
    goes="with torch 2.11",
    absent="skip",
    needed=lambda: not hasattr(inductor_lowering, _TELLS_SLICES),
)
def _slice(stock: Callable[..., Any]) -> Callable[..., Any]:
    def lower(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1, **rest: Any) -> Any:
        dim = dim + len(x.get_size()) if dim < 0 else dim
        size = sympy.sympify(x.get_size()[dim])
        numbers = [sympy.sympify(n) for n in (size, start, end) if n is not None]
        owned = any(n.free_symbols for n in numbers) and not free_unbacked_symbols(numbers)
        env = V.graph.sizevars.shape_env
        if rest or not owned or not isinstance(env, FreeShapeEnv):
            return stock(x, dim, 0 if start is None else start, sys.maxsize if end is None else end, step, **rest)
        start, end = 0 if start is None else start, size if end is None or end == sys.maxsize else end
        with env.as_captured():  # whether a bound counts from the end is that of the capture, as 0 of -n does not
            first, last = _within(start, size), _within(end, size)
        if isinstance(start, int) and isinstance(end, int) and (start < 0) == (end < 0):
            last = last if start <= end else first
        elif first != 0 and not V.graph.sizevars.statically_known_leq(first, last):
            last = Max(first, last)
        return ir.TensorBox(ir.SliceView.create(x.data, dim, first, last, step, clamp=False))

    return lower


def _within(bound: Any, size: Any) -> Any:
    """A bound as eager takes it; whether it counts from the end was asked when the slice was captured."""
    known, bound = V.graph.sizevars, sympy.sympify(bound)
    if known.size_hint(bound) < 0:
        bound = bound + size
        return bound if known.statically_known_geq(bound, 0) else Max(bound, 0)
    return bound if known.statically_known_leq(bound, size) else Min(bound, size)


def _convolution(*args: Any) -> Any:
    """Eager's kernel, on arguments that lie as they do in eager: it lays out its result by them."""
    call = inductor_lowering.fallback_handler(_aten.convolution.default, add_to_fallback_set=False)
    given, _ = inductor_lowering.constrain_to_fx_strides(V.graph.current_node, *args)
    return call(*given)


def _adaptive_max_pool2d_backward(*args: Any) -> Any:
    call = inductor_lowering.fallback_handler(operators.adaptive_max_pool2d_backward, add_to_fallback_set=False)
    given, _ = inductor_lowering.constrain_to_fx_strides(V.graph.current_node, *args)
    return call(*given, _strides(V.graph.current_node.meta["val"]))


@repair(
    "torch._inductor.lowering:lowerings[aten.convolution_backward.default]",
    scope="compile",
    phase="lowering",
    broken="2.13",
    symptom="A program for each size of a convolution's gradient.",
    cause=f"Inductor's choice of kernels for convolution_backward {_PINS}.",
    cure="For free sizes eager's kernel is called, with results that lie as the trace has them.",
    goes="when there is a general kernel for it",
    absent="skip",
)
def _convolution_backward(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Eager's kernel, with results that lie as the trace has them; Inductor's choice of kernels pins sizes (2.13)."""
    call = inductor_lowering.fallback_handler(operators.convolution_backward, add_to_fallback_set=False)

    def lower(*args: Any) -> Any:
        sizes = [size for tensor in args[:3] for size in tensor.get_size()]
        free = any(sympy.sympify(size).free_symbols for size in sizes)
        if not free or not isinstance(V.graph.sizevars.shape_env, FreeShapeEnv):
            return stock(*args)
        for_input, for_weight, _ = V.graph.current_node.meta["val"]
        return call(*args, _strides(for_input), _strides(for_weight))

    return lower


def _strides(result: torch.Tensor | None) -> list[Any] | None:
    return None if result is None else [concrete.number_expr(stride) for stride in result.stride()]


_WEIGHT = {_aten.convolution.default: 1, _aten.convolution_backward.default: 2}  # which argument it is
_stock_layout = inductor_graph.GraphLowering.decide_layout_opt


@repair(
    "torch._inductor.graph:GraphLowering.decide_layout_opt",
    scope="compile",
    phase="lowering",
    kind="meaning",
    symptom="Convolutions by eager's kernels get arguments in channels last, and lay out their results by them.",
    cause="graph.py:GraphLowering.decide_layout_opt is for kernels of Inductor's choice.",
    cure="Where a weight has free sizes nothing is laid out channels last.",
    goes="with `dynamic_lowerings.convolution`",
)
def _decide_layout_opt(stock: Any) -> Any:
    return staticmethod(_lay_out_channels_last)


def _lay_out_channels_last(gm: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> bool:
    """Channels last is for kernels of Inductor's choice; eager's take arguments as they lie in eager."""
    weights = [n.args[_WEIGHT[n.target]] for n in gm.graph.nodes if n.target in _WEIGHT]
    if any(isinstance(size, torch.SymInt) for weight in weights for size in weight.meta["val"].shape):
        return False
    return _stock_layout(gm, *args, **kwargs)


@repair(
    "torch._inductor.decomposition:decompositions[aten.adaptive_max_pool2d.default]",
    scope="compile",
    phase="lowering",
    broken="2.11-2.15",
    symptom="A program for each size of an image of which adaptive maxima are taken.",
    cause="decomposition.py:adaptive_max_pool2d unrolls over windows.",
    cure="For free sizes it is left to the lowering.",
    goes="when it is decomposed for symbolic sizes",
    absent="skip",
)
def _decomposed(stock: Callable[..., Any]) -> Callable[..., Any]:
    unpinned = [[1, 1]] if "amax" in inspect.unwrap(stock).__code__.co_names else []  # after torch 2.11

    def decompose(input: Any, output_size: Any, **out: Any) -> Any:
        free = any(isinstance(n, torch.SymInt) and isinstance(n.node.shape_env, FreeShapeEnv) for n in input.shape[-2:])
        if free and 0 not in output_size and list(output_size) not in unpinned:
            return NotImplemented
        return stock(input, output_size, **out)

    return decompose
