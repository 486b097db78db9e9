"""Symbolic floats given to scalar arguments of aten calls, rewritten to tensors before tensorify.

Owns their rewriting in graphs of AOTAutograd (torch 2.11 to 2.15): `tensorify_python_scalars` makes tensors of the
floats that sums, products and comparisons are given, and a constant of any other, `clamp` and `leaky_relu` among them:
a program for each value. Here such a call is made of those that take a tensor; torch's own pass does the rest. It also
leaves out the `alpha` of a sum with a float: the product is made here.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import sympy
import torch
from torch.utils._sympy.symbol import SymT, symbol_is_type

from anyshape._torch.fake_runs import concrete
from anyshape._torch.repairs.registry import repair
from anyshape._torch.symbolic.shape_env import FreeShapeEnv

_aten = torch.ops.aten
_HALVES = (torch.float16, torch.bfloat16)


class _Emit:
    """Adds calls of aten to a graph, each with the fake value that it has: `emit.mul.Tensor(x, y)`."""

    graph: Any = None
    fake_mode: Any = None

    @contextlib.contextmanager
    def into(self, graph: Any, fake_mode: Any) -> Iterator[None]:
        self.graph, self.fake_mode = graph, fake_mode
        try:
            yield
        finally:
            self.graph = self.fake_mode = None

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        node = self.graph.call_function(target, args, kwargs)
        with self.fake_mode:
            args, kwargs = torch.fx.node.map_arg((args, kwargs), _value)
            node.meta["val"] = target(*args, **kwargs)
        return node

    def convert(self, x: Any, dtype: torch.dtype) -> Any:
        return x if _dtype(x) == dtype else self.call(torch.ops.prims.convert_element_type.default, x, dtype)

    def __getattr__(self, name: str) -> Any:
        return _Packet(self, getattr(_aten, name))


class _Packet:
    def __init__(self, emit: _Emit, packet: Any) -> None:
        self._emit, self._packet = emit, packet

    def __getattr__(self, name: str) -> Any:
        return functools.partial(self._emit.call, getattr(self._packet, name))


emit = _Emit()


def _scalar(number: Any) -> Any:
    """A 0-dim tensor of a number, exactly."""
    if _is_tensor(number):
        return number
    if isinstance(number, (int, float)):
        return emit.scalar_tensor.default(number, dtype=torch.float64)
    return emit.mul.Tensor(emit.scalar_tensor.default(1.0, dtype=torch.float64), number)


def _full(like: Any, number: Any, **options: Any) -> Any:
    return emit.mul.Tensor(emit.full_like.default(like, 1, **options), number)


def _new_full(x: Any, size: Any, number: Any, **options: Any) -> Any:
    return emit.mul.Tensor(emit.new_full.default(x, size, 1, **options), number)


def _full_of(size: Any, number: Any, **options: Any) -> Any:
    return emit.mul.Tensor(emit.full.default(size, 1, **options), number)


def _leaky_relu(x: Any, slope: Any) -> Any:
    return emit.where.self(emit.gt.Scalar(x, 0), x, emit.mul.Tensor(x, slope))


def _leaky_relu_backward(grad: Any, x: Any, slope: Any, is_result: bool) -> Any:
    return emit.where.self(emit.gt.Scalar(x, 0), grad, emit.mul.Tensor(grad, slope))


def _clamp(x: Any, least: Any = None, most: Any = None) -> Any:
    if least is not None:
        x = emit.maximum.default(x, _like(x, least))
    return x if most is None else emit.minimum.default(x, _like(x, most))


def _like(x: Any, number: Any) -> Any:
    """A 0-dim tensor of a number in the dtype of another."""
    return emit.convert(_scalar(number), _dtype(x))


def _elu(x: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    times = lambda a, b: a if isinstance(b, (int, float)) and b == 1 else emit.mul.Tensor(a, b)
    below = times(times(emit.expm1.default(times(x, input_scale)), alpha), scale)
    return emit.where.self(emit.gt.Scalar(x, 0), times(x, scale), below)


def _elu_backward(grad: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Any) -> Any:
    rise = emit.mul.Tensor(_scalar(alpha), scale)
    if is_result:
        below = emit.mul.Tensor(emit.add.Tensor(x, _like(x, rise)), input_scale)
    else:
        below = emit.mul.Tensor(emit.exp.default(emit.mul.Tensor(x, input_scale)), _like(x, rise))
        below = emit.mul.Tensor(below, input_scale)
    above = emit.mul.Tensor(grad, scale)
    return emit.where.self(emit.le.Scalar(x, 0), emit.mul.Tensor(grad, below), above)


def _threshold(x: Any, threshold: Any, value: Any) -> Any:
    return emit.where.self(emit.le.Scalar(x, threshold), _like(x, value), x)


def _threshold_backward(grad: Any, x: Any, threshold: Any) -> Any:
    return emit.where.self(emit.le.Scalar(x, threshold), _like(grad, 0), grad)


def _outside(x: Any, limit: Any) -> Any:
    """Whether what `hardshrink` and `softshrink` keep: nan too."""
    inside = emit.logical_and.default(emit.ge.Scalar(x, _minus(limit)), emit.le.Scalar(x, limit))
    return emit.logical_not.default(inside)


def _minus(number: Any) -> Any:
    return emit.call(operator.neg, number) if isinstance(number, torch.fx.Node) else -number


def _hardshrink(x: Any, limit: Any = 0.5) -> Any:
    return emit.where.self(_outside(x, limit), x, _like(x, 0))


def _softshrink(x: Any, limit: Any = 0.5) -> Any:
    shrunk = emit.where.self(emit.gt.Scalar(x, 0), emit.sub.Tensor(x, limit), emit.add.Tensor(x, limit))
    return emit.where.self(_outside(x, limit), shrunk, emit.mul.Tensor(x, 0))


def _shrink_backward(grad: Any, x: Any, limit: Any) -> Any:
    return emit.where.self(_outside(x, limit), grad, _like(grad, 0))


def _hardtanh(x: Any, least: Any = -1, most: Any = 1) -> Any:
    return _clamp(x, least, most)


def _hardtanh_backward(grad: Any, x: Any, least: Any, most: Any) -> Any:
    beyond = emit.logical_or.default(emit.le.Scalar(x, least), emit.ge.Scalar(x, most))
    return emit.where.self(beyond, _like(grad, 0), grad)


def _softplus(x: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    scaled = emit.mul.Tensor(x, beta)
    bent = emit.div.Tensor(emit.log1p.default(emit.exp.default(scaled)), beta)
    return emit.where.self(emit.gt.Scalar(scaled, threshold), x, bent)


def _softplus_backward(grad: Any, x: Any, beta: Any, threshold: Any) -> Any:
    scaled = emit.mul.Tensor(x, beta)
    z = emit.exp.default(scaled)
    bent = emit.div.Tensor(emit.mul.Tensor(grad, z), emit.add.Tensor(z, 1.0))
    return emit.where.self(emit.gt.Scalar(scaled, threshold), grad, bent)


def _where_other(condition: Any, x: Any, other: Any) -> Any:
    return emit.where.self(condition, x, _scalar(other))


def _where_self(condition: Any, x: Any, other: Any) -> Any:
    return emit.where.self(condition, _scalar(x), other)


def _masked_fill(x: Any, mask: Any, value: Any) -> Any:
    return emit.where.self(mask, _like(x, value), x)


def _lerp(x: Any, end: Any, weight: Any) -> Any:
    apart = emit.sub.Tensor(end, x)
    near = emit.add.Tensor(x, emit.mul.Tensor(apart, weight))
    far = emit.sub.Tensor(end, emit.mul.Tensor(apart, emit.sub.Tensor(_scalar(1.0), weight)))
    return emit.where.self(emit.lt.Scalar(emit.abs.default(_scalar(weight)), 0.5), near, far)


def _add(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    return emit.add.Tensor(x, _scaled(x, y, alpha))


def _sub(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    return emit.sub.Tensor(x, _scaled(x, y, alpha))


def _scaled(x: Any, y: Any, alpha: Any) -> Any:
    return emit.mul.Tensor(y if _is_tensor(y) else _scalar(y), alpha)


def _rsub(x: Any, number: Any, alpha: Any = 1) -> Any:
    return emit.sub.Tensor(_like(x, number), emit.mul.Tensor(x, alpha))


def _addcmul(x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    return emit.add.Tensor(x, emit.mul.Tensor(emit.mul.Tensor(a, value), b))


def _addcdiv(x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    return emit.add.Tensor(x, emit.div.Tensor(emit.mul.Tensor(a, value), b))


def _matrices(product: str) -> Callable[..., Any]:
    def call(x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
        return emit.add.Tensor(emit.mul.Tensor(x, beta), emit.mul.Tensor(getattr(emit, product).default(a, b), alpha))

    return call


def _index_fill(x: Any, dim: int, index: Any, value: Any) -> Any:
    return emit.index_fill.int_Tensor(x, dim, index, _like(x, value))


def _index_add(x: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    return emit.index_add.default(x, dim, index, emit.mul.Tensor(source, alpha))


def _scatter(x: Any, dim: int, index: Any, value: Any) -> Any:
    return emit.scatter.src(x, dim, index, _full(emit.full_like.default(index, 1, dtype=_dtype(x)), value))


def _pad(x: Any, sizes: Any, value: Any = 0) -> Any:
    inside = emit.constant_pad_nd.default(emit.full_like.default(x, 1, dtype=torch.bool), sizes, 0)
    return emit.where.self(inside, emit.constant_pad_nd.default(x, sizes, 0), _like(x, value))


def _with_tensor(name: str) -> Callable[..., Any]:
    """A call of which the other argument is a tensor."""
    overload = operator.attrgetter(name)
    return lambda x, number, **options: overload(emit)(x, _like(x, number), **options)


def _pow(x: Any, exponent: Any) -> Any:
    return emit.pow.Tensor_Tensor(x, _like(x, exponent))


def _rpow(number: Any, exponent: Any) -> Any:
    return emit.pow.Tensor_Tensor(_like(exponent, number), exponent)


CALLS: dict[Any, Callable[..., Any]] = {
    _aten.leaky_relu.default: _leaky_relu,
    _aten.leaky_relu_backward.default: _leaky_relu_backward,
    _aten.clamp.default: _clamp,
    _aten.clamp_min.default: lambda x, least: _clamp(x, least),
    _aten.clamp_max.default: lambda x, most: _clamp(x, None, most),
    _aten.hardtanh.default: _hardtanh,
    _aten.hardtanh_backward.default: _hardtanh_backward,
    _aten.elu.default: _elu,
    _aten.elu_backward.default: _elu_backward,
    _aten.threshold.default: _threshold,
    _aten.threshold_backward.default: _threshold_backward,
    _aten.hardshrink.default: _hardshrink,
    _aten.hardshrink_backward.default: _shrink_backward,
    _aten.softshrink.default: _softshrink,
    _aten.softshrink_backward.default: _shrink_backward,
    _aten.softplus.default: _softplus,
    _aten.softplus_backward.default: _softplus_backward,
    _aten.pow.Tensor_Scalar: _pow,
    _aten.pow.Scalar: _rpow,
    _aten.where.ScalarOther: _where_other,
    _aten.where.ScalarSelf: _where_self,
    _aten.masked_fill.Scalar: _masked_fill,
    _aten.lerp.Scalar: _lerp,
    _aten.add.Tensor: _add,
    _aten.sub.Tensor: _sub,
    _aten.add.Scalar: _add,
    _aten.sub.Scalar: _sub,
    _aten.rsub.Scalar: _rsub,
    _aten.mul.Scalar: lambda x, number: emit.mul.Tensor(x, number),
    _aten.div.Scalar: lambda x, number: emit.div.Tensor(x, number),
    _aten.addcmul.default: _addcmul,
    _aten.addcdiv.default: _addcdiv,
    _aten.addmm.default: _matrices("mm"),
    _aten.baddbmm.default: _matrices("bmm"),
    _aten.fmod.Scalar: _with_tensor("fmod.Tensor"),
    _aten.remainder.Scalar: _with_tensor("remainder.Tensor"),
    _aten.remainder.Tensor: _with_tensor("remainder.Tensor"),
    _aten.fmod.Tensor: _with_tensor("fmod.Tensor"),
    _aten.div.Tensor_mode: _with_tensor("div.Tensor_mode"),
    _aten.div.Scalar_mode: _with_tensor("div.Tensor_mode"),
    _aten.floor_divide.Scalar: _with_tensor("floor_divide.default"),
    _aten.floor_divide.default: _with_tensor("floor_divide.default"),
    _aten.copysign.Scalar: _with_tensor("copysign.Tensor"),
    _aten.xlogy.Scalar_Other: _with_tensor("xlogy.Tensor"),
    _aten.index_fill.int_Scalar: _index_fill,
    _aten.index_add.default: _index_add,
    _aten.scatter.value: _scatter,
    _aten.constant_pad_nd.default: _pad,
    _aten.fill.Scalar: _full,
    _aten.full_like.default: _full,
    _aten.full.default: _full_of,
    _aten.new_full.default: _new_full,
    _aten.scalar_tensor.default: lambda number, **options: emit.convert(
        _scalar(number), options.get("dtype") or torch.float32
    ),
}  # fmt: skip
_UNBOUNDED = {_aten.mul.Scalar, _aten.div.Scalar, _aten.where.ScalarOther, _aten.where.ScalarSelf}


def _is_tensor(value: Any) -> bool:
    return isinstance(_value(value), torch.Tensor)


def _value(argument: Any) -> Any:
    return argument.meta.get("val") if isinstance(argument, torch.fx.Node) else argument


def _dtype(tensor: Any) -> torch.dtype:
    return _value(tensor).dtype  # type: ignore[no-any-return]


def rewrite(graph: Any, env: FreeShapeEnv, fake_mode: Any) -> None:
    """Have calls that are given a float of the function take a tensor."""
    for node in list(graph.nodes):
        make = CALLS.get(node.target) if node.op == "call_function" else None
        if make is None or not _fits(node, env):
            continue
        wanted = node.meta["val"]
        with graph.inserting_before(node), emit.into(graph, fake_mode):
            args = node.args
            if wanted.dtype in _HALVES:  # computed with what kernels compute with
                args = torch.fx.node.map_arg(args, _widened)
            made = make(*args, **node.kwargs)
            if _dtype(made) != wanted.dtype:
                made = emit.convert(made, wanted.dtype)
        for key, value in node.meta.items():
            made.meta.setdefault(key, value)
        node.replace_all_uses_with(made)
        graph.erase_node(node)


def _widened(node: Any) -> Any:
    is_half = isinstance(node.meta.get("val"), torch.Tensor) and _dtype(node) in _HALVES
    return emit.convert(node, torch.float32) if is_half else node


def _fits(node: Any, env: FreeShapeEnv) -> bool:
    """Whether a call is given a float that no kernel refuses, and computes with floats."""
    given: list[Any] = []
    torch.fx.node.map_aggregate((node.args, node.kwargs), lambda a: given.append(_value(a)))
    numbers = [v for v in given if isinstance(v, torch.SymFloat)]
    result = node.meta.get("val")
    if not numbers or not isinstance(result, torch.Tensor):
        return False
    if node.target in (_aten.add.Tensor, _aten.sub.Tensor) and not node.kwargs:
        return False  # torch's own pass knows it
    dtypes = {v.dtype for v in (result, *given) if isinstance(v, torch.Tensor) and v.dtype is not torch.bool}
    if node.target in (_aten.index_fill.int_Scalar, _aten.index_add.default, _aten.scatter.value):
        dtypes = {result.dtype}
    if not dtypes or not all(d.is_floating_point for d in dtypes):
        return False
    if node.target in _UNBOUNDED or dtypes == {torch.float64}:
        return True
    largest = sympy.Float(min(torch.finfo(d).max for d in dtypes))
    exprs = [concrete.number_expr(n) for n in numbers]
    if not all(env.recording.owns(e) or not e.free_symbols for e in exprs):
        return False  # a number out of the data, of which nothing is known
    within = [sympy.Le(sympy.Abs(e), largest) for e in exprs]
    return all(bool(fact) if not fact.free_symbols else _holds(fact, env) for fact in within)


def _holds(fact: sympy.Basic, env: FreeShapeEnv) -> bool:
    """Whether a fact holds; of a float born from data nothing is known before the call, and torch's own way is left."""
    return env.recording.owns(fact) and env.holds(fact)


def _unread(graph: Any, env: FreeShapeEnv) -> set[Any]:
    """Floats of the function of which nothing in a graph is computed: torch takes them for constants by then."""
    read: set[Any] = set()
    needed: set[Any] = set()
    for node in reversed(graph.nodes):
        if node.op in ("placeholder", "output") or node.is_impure() or node in needed:
            needed.update(node.all_input_nodes)
            value = node.meta.get("val")
            if isinstance(value, (torch.SymFloat, torch.SymInt, torch.SymBool)):
                read |= value.node.expr.free_symbols
    floats = {s for s in env.backed_var_to_val if symbol_is_type(s, SymT.FLOAT)}
    return {s for s in floats - read - env.replacements.keys() if env.recording.owns(s)}


@repair(
    "torch._functorch._aot_autograd.graph_compile:tensorify_python_scalars",
    scope="compile",
    phase="AOT",
    broken="2.11-2.15",
    symptom="A float argument that a kernel takes as a number (`clamp`, `leaky_relu`) is a program for each value.",
    cause="fx/passes/_tensorify_python_scalars.py makes tensors of the floats of sums, products and comparisons alone.",
    cure="Such a call is made of those that take a tensor, before torch's own pass.",
    goes="when kernels take symbolic floats",
    absent="skip",
)
def tensorify_python_scalars(stock: Any) -> Any:
    def tensorify(module: Any, env: Any, fake_mode: Any) -> None:
        if not isinstance(env, FreeShapeEnv):
            stock(module, env, fake_mode)
            return
        rewrite(module.graph, env, fake_mode)
        unread = {s: env.backed_var_to_val.pop(s) for s in _unread(module.graph, env)}
        try:
            stock(module, env, fake_mode)
        finally:
            env.backed_var_to_val.update(unread)

    return tensorify
