"""Running one node of a captured graph on fake tensors of concrete sizes.

Owns: snapshots of fake tensors that outlive a capture, and the concrete run. What is compared with what is the
verifier's business.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import sympy
import torch
from torch._C._functorch import (
    _add_batch_dim,
    _vmap_decrement_nesting,
    _vmap_increment_nesting,
    get_unwrapped,
    is_batchedtensor,
    is_functorch_wrapped_tensor,
    is_gradtrackingtensor,
    maybe_get_bdim,
)
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from anyshape._torch.fake_runs import collapsed_dims
from anyshape._torch.fake_runs.unheard_warnings import unheard
from anyshape._torch.symbolic import python_code


@dataclasses.dataclass(frozen=True)
class TensorSnapshot:
    """A tensor's metadata, its numbers kept as expressions of the free sizes."""

    sizes: tuple[sympy.Expr, ...]
    strides: tuple[sympy.Expr, ...]
    offset: sympy.Expr
    dtype: torch.dtype
    device: torch.device
    storage: int  # equal for tensors of one snapshot that share memory
    conj: bool = False
    negated: bool = False
    mapped: int | None = None  # the dim that vmap maps over; the sizes are those it does not show


@dataclasses.dataclass(frozen=True)
class SparseSnapshot:
    """A sparse result's metadata: its own sizes, and those of the indices and values that it is made of.

    Whether it is coalesced is told by the call itself when it runs; what reads a sparse tensor is not repeated.
    """

    sizes: tuple[sympy.Expr, ...]
    of_indices: tuple[sympy.Expr, ...]
    of_values: tuple[sympy.Expr, ...]
    dtype: torch.dtype
    device: torch.device


@dataclasses.dataclass(frozen=True)
class ScalarSnapshot:
    """A SymInt, SymFloat or SymBool."""

    expr: sympy.Basic
    pytype: type


@dataclasses.dataclass(frozen=True)
class Ambient:
    """Autocast as it was; entered when called. It can be pickled."""

    autocast: tuple[tuple[str, Any], ...]

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for device, dtype in self.autocast:
                stack.enter_context(torch.autocast(device, dtype=dtype))
            yield


class OpLog(TorchDispatchMode):
    """The aten calls that one call comes down to, each with its plain arguments.

    A composite call that picks another way for other sizes may well give the same metadata; its aten calls tell.
    """

    supports_higher_order_operators = True  # torch.cond and its kin: their graphs are not looked into

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(func, torch._ops.HigherOrderOperator):
            return func(*args, **(kwargs or {}))
        if func not in _BOOKKEEPING and func.namespace != "prim":  # prim.device and its kin compute nothing
            numbers = [x for x in leaves((args, kwargs or {})) if isinstance(x, _NUMBERS)]
            self.calls.append((func, tuple(number_expr(n) for n in numbers)))
        return func(*args, **(kwargs or {}))


# Autograd's, and not there where no gradient is wanted.
_BOOKKEEPING = (torch.ops.aten.detach.default, torch.ops.aten.alias.default)
_NUMBERS = (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool)


def number_expr(value: Any) -> sympy.Basic:
    """A number, symbolic or not, as an expression."""
    return value.node.expr if hasattr(value, "node") else sympy.sympify(value)


class NotPlain(Exception):
    """A value that cannot be made again from metadata alone (sparse, a subclass, a script object)."""


def differentiated(value: Any) -> Any:
    """A tensor without what `torch.func.grad` puts around it, which has its sizes and strides."""
    while isinstance(value, torch.Tensor) and is_gradtrackingtensor(value):
        value = get_unwrapped(value)
    return value


def storage(tensor: torch.Tensor) -> int:
    """Which memory a tensor has, whatever transforms of functions put around it."""
    while is_functorch_wrapped_tensor(tensor):
        tensor = get_unwrapped(tensor)
    return tensor.untyped_storage()._cdata


def mapped_dim(value: Any) -> int | None:
    """The dim of a tensor that vmap maps over, where it does."""
    return maybe_get_bdim(value) if isinstance(value, torch.Tensor) and is_batchedtensor(value) else None


def physical(value: Any) -> Any:
    """A tensor with the dim that vmap maps over."""
    return get_unwrapped(value) if isinstance(value, torch.Tensor) and is_batchedtensor(value) else value


def snapshot(tree: Any) -> Any:
    """`tree` with each tensor and symbolic number replaced by its snapshot."""

    def leaf(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            value = differentiated(value)
            mapped = mapped_dim(value)
            value = physical(value)
            if value.layout is not torch.strided or type(value) not in _PLAIN or is_functorch_wrapped_tensor(value):
                raise NotPlain(type(value).__name__)
            return TensorSnapshot(
                tuple(map(number_expr, value.shape)),
                tuple(map(number_expr, value.stride())),
                number_expr(value.storage_offset()),
                value.dtype,
                value.device,
                value.untyped_storage()._cdata,
                value.is_conj(),
                value.is_neg(),
                mapped,
            )
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return ScalarSnapshot(value.node.expr, value.node.pytype)
        return value

    return map_leaves(leaf, tree)


def snapshot_of_result(tree: Any) -> Any:
    """What a call gave, which is not made again from it: a sparse tensor has a snapshot, too."""

    def leaf(value: Any) -> Any:
        return sparse_snapshot(value) if is_sparse(value) else snapshot(value)

    return map_leaves(leaf, tree) if any(map(is_sparse, leaves(tree))) else snapshot(tree)


def is_sparse(value: Any) -> bool:
    """Whether a value is a tensor of indices and values."""
    return isinstance(value, torch.Tensor) and type(value) in _PLAIN and value.layout is torch.sparse_coo


def sparse_snapshot(value: torch.Tensor) -> SparseSnapshot:
    parts = value, value._indices(), value._values()
    sizes, of_indices, of_values = (tuple(map(number_expr, part.shape)) for part in parts)
    return SparseSnapshot(sizes, of_indices, of_values, value.dtype, value.device)


_PLAIN: set[type] = {torch.Tensor, torch.nn.Parameter, FakeTensor}


def exact_mode() -> FakeTensorMode:
    """What fake tensors of exact sizes are made in."""
    return FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True, static_shapes=True)


class ConcreteRun:
    """Fake tensors of exact sizes; unbacked sizes of the graph stay symbols of this run.

    `mode` is for runs that follow one another: to make one takes as long as to run a small call.
    """

    def __init__(self, sizes: Mapping[sympy.Basic, sympy.Integer], mode: FakeTensorMode | None = None) -> None:
        self.sizes = dict(sizes)
        self.mode = mode or exact_mode()
        self.env: ShapeEnv = self.mode.shape_env
        self._born: dict[sympy.Basic, Any] = {}
        self._storages: dict[int, torch.Tensor] = {}

    def number(self, expr: sympy.Basic, pytype: type = int) -> Any:
        value = expr.xreplace(self.sizes)
        if not value.free_symbols:
            return pytype(value)
        for symbol in value.free_symbols if pytype is int else ():
            if symbol not in self._born:
                fresh = self.env.create_unbacked_symint()
                torch._check(fresh >= 0)
                self._born[symbol] = fresh
        renamed = value.xreplace({s: v.node.expr for s, v in self._born.items()})
        if pytype is float:
            return self.env.create_unbacked_symfloat()
        if pytype is bool:
            return self.env.create_unbacked_symbool()
        return self.env.create_symintnode(renamed, hint=None)

    def unequal(self, a: sympy.Basic, b: sympy.Basic) -> bool:
        """Unbacked sizes of the graph cannot be compared; numbers can."""
        return not a.free_symbols and not b.free_symbols and bool(a != b)

    def unequal_strides(self, a: sympy.Basic, b: sympy.Basic, size: sympy.Basic) -> bool:
        """Whether the strides of a dim of this size address different elements."""
        return bool(size != 1) and self.unequal(a, b)

    def is_zero(self, number: Any) -> bool | None:
        """Whether a size or a count is 0; None where it is born in the graph."""
        expr = number_expr(number)
        return None if expr.free_symbols else bool(expr == 0)

    def is_exact(self, tree: Any) -> bool:
        """Whether the numbers of a result are what Python makes of them."""
        return True

    def rename(self, expr: sympy.Basic) -> sympy.Basic:
        return expr.xreplace(self.sizes).xreplace({s: v.node.expr for s, v in self._born.items()})

    def make(self, tree: Any) -> Any:
        """Fake tensors for snapshots; those that share memory share it here too."""

        def leaf(value: Any) -> Any:
            if isinstance(value, ScalarSnapshot):
                return self.number(value.expr, value.pytype)
            if not isinstance(value, TensorSnapshot):
                if isinstance(value, torch.Tensor):
                    raise NotPlain("a real tensor")
                return value
            sizes = [self.number(s) for s in value.sizes]
            # Strides of an empty tensor address nothing, and may not even have a value (`n // 0`).
            empty = any(type(n) is int and n == 0 for n in sizes)
            strides = _contiguous(sizes) if empty else [self.number(s) for s in value.strides]
            offset = 0 if empty else self.number(value.offset)
            base = self._storages.get(value.storage)
            if base is None or base.dtype != value.dtype:
                tensor = torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
                self._storages.setdefault(value.storage, tensor)
            else:
                tensor = base.as_strided(sizes, strides, offset)
            if value.conj:
                tensor = torch._conj(tensor)
            if value.negated:
                tensor = torch._neg_view(tensor)
            if value.mapped is not None:
                tensor = _add_batch_dim(tensor, value.mapped, self._level)
            return tensor

        return map_leaves(leaf, tree)

    @contextlib.contextmanager
    def mapping(self, tree: Any) -> Iterator[None]:
        """vmap, where tensors of `tree` are mapped over."""
        over = [t for t in leaves(tree) if isinstance(t, TensorSnapshot) and t.mapped is not None]
        if not over:
            yield
            return
        first = over[0]
        self._level = _vmap_increment_nesting(self.number(first.sizes[first.mapped or 0]), "error")
        try:
            yield
        finally:
            _vmap_decrement_nesting()

    @contextlib.contextmanager
    def running(self) -> Any:
        with self.mode, enable_python_dispatcher(), torch.no_grad(), collapsed_dims.repaired(), unheard():
            yield


class TracedRun(ConcreteRun):
    """Fake tensors of symbolic sizes: what is asked of them is answered as it is at `sizes`, and remembered.

    `signed` are the symbols of numbers, which may be negative where sizes are not.
    """

    def __init__(
        self, sizes: Mapping[sympy.Basic, sympy.Integer], signed: frozenset[sympy.Basic] = frozenset()
    ) -> None:
        env = ShapeEnv(specialize_zero_one=False, duck_shape=False)
        mode = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
        mode.cache_enabled = False  # nothing is asked twice here
        super().__init__(sizes, mode)
        self.signed = signed
        self._own: dict[sympy.Basic, sympy.Basic] = {}
        self._decided: set[sympy.Basic] = set()  # those of `_own` that have a value; others are born in the graph

    def number(self, expr: sympy.Basic, pytype: type = int) -> Any:
        if not expr.free_symbols:
            return pytype(expr)
        own = self.rename(expr)
        if self._is_born(own):
            if pytype is not int:
                raise NotPlain(f"a {pytype.__name__} of a size born in the graph")
            return self.env.create_symintnode(own, hint=None)
        try:
            hint = pytype(expr.xreplace(self.sizes))
        except (ZeroDivisionError, TypeError) as error:
            raise NotPlain("a number without a value") from error
        if pytype is bool:
            return bool(self.env.evaluate_expr(own))
        make = self.env.create_symintnode if pytype is int else self.env.create_symfloatnode
        return make(own, hint=hint)

    def rename(self, expr: sympy.Basic) -> sympy.Basic:
        for symbol in expr.free_symbols - self._own.keys():
            self._own[symbol] = self._symbol(symbol)
        own = expr.xreplace(self._own)
        for fact in python_code.undefined_where(own):
            if not self._is_born(fact) and self._ask(fact):
                raise ZeroDivisionError(f"{expr} has no value")
        return own

    def _symbol(self, symbol: sympy.Basic) -> sympy.Basic:
        value = self.sizes.get(symbol)
        if value is None:
            fresh = self.env.create_unbacked_symint()
            torch._check(fresh >= 0)
            return fresh.node.expr
        # Not `positive`, or sympy settles by itself what is asked about a size of 0.
        made = self.env.create_symbol(
            int(value) if value.is_Integer else float(value),
            ConstantSource(f"_{symbol}"),
            DimDynamic.DYNAMIC,
            None,
            positive=None,
            do_not_specialize_zero_one=True,
        )
        if value.is_Integer:
            self.env.var_to_range[made] = ValueRanges(-int_oo if symbol in self.signed else 0, int_oo)
        self._decided.add(made)
        return made

    def _is_born(self, expr: sympy.Basic) -> bool:
        """Whether it has a size that is born in the graph, before this node or in it."""
        return not self._decided.issuperset(expr.free_symbols)

    def unequal(self, a: sympy.Basic, b: sympy.Basic) -> bool:
        """Where neither is known to be the other, whether they are the same is one more question about the sizes."""
        known = self._same(a, b)
        return not (self._ask(sympy.Eq(a, b)) if known is None else known)

    def unequal_strides(self, a: sympy.Basic, b: sympy.Basic, size: sympy.Basic) -> bool:
        """The stride of a dim has `Max(1, n)` for a dim inside it: `n` will do, since of nothing no stride shows."""
        if self._same(_without_floors(a), _without_floors(b)):
            return False
        return not self._is(size, 1) and self.unequal(a, b)

    def is_zero(self, number: Any) -> bool | None:
        expr = number_expr(number)
        return None if self._is_born(expr) else self._is(expr, 0)

    def _same(self, a: sympy.Basic, b: sympy.Basic) -> bool | None:
        if a == b or self._is_born(a) or self._is_born(b):
            return True  # unbacked sizes of the graph cannot be compared
        known = self.env._maybe_evaluate_static(sympy.Eq(a, b))
        return None if known is None else bool(known)

    def _is(self, size: sympy.Basic, value: int) -> bool:
        return not self._is_born(size) and self._ask(sympy.Eq(size, value))

    def _ask(self, fact: sympy.Basic) -> bool:
        return bool(self.env.evaluate_expr(fact))

    def questions(self) -> tuple[sympy.Basic, ...]:
        """What was asked, each as the fact that holds: where all of them do, the run would have gone the same way."""
        back = {own: symbol for symbol, own in self._own.items()}
        facts = tuple(guard.expr.xreplace(back) for guard in self.env.guards)
        if any(_divides(fact, self.signed) for fact in facts):
            raise NotPlain("a division of a number that may be negative")
        if any(fact.has(sympy.Float) for fact in facts):  # the next one would be another class
            raise NotPlain("a float that is asked for its value")
        return facts

    def is_exact(self, tree: Any) -> bool:
        signed = frozenset(self._own[s] for s in self.signed & self._own.keys())
        exprs = (number_expr(n) for x in leaves(tree) for n in _numbers_of(x)) if signed else ()
        return not any(_divides(expr, signed) for expr in exprs)


def _numbers_of(value: Any) -> tuple[Any, ...]:
    if is_sparse(value):
        return (*value.shape, *value._indices().shape, *value._values().shape)
    if isinstance(value, torch.Tensor):
        return (*value.shape, *value.stride(), value.storage_offset())
    return (value,) if isinstance(value, _NUMBERS) else ()


def _divides(expr: sympy.Basic, signed: frozenset[sympy.Basic]) -> bool:
    """Whether a number that may be negative is divided: torch's functions simplify as if none were."""
    if not signed or signed.isdisjoint(expr.free_symbols):
        return False
    return any(python_code.is_division(e) and e.free_symbols & signed for e in sympy.preorder_traversal(expr))


def _without_floors(stride: sympy.Basic) -> sympy.Basic:
    is_floor = lambda e: type(e).__name__ == "Max" and len(e.args) == 2 and sympy.S.One in e.args
    return stride.replace(is_floor, lambda e: next(a for a in e.args if a != 1))


_LOUD = (
    "torch._subclasses.fake_tensor",
    "torch.export._trace",
    "torch._export.non_strict_utils",
    "torch.fx.experimental.symbolic_shapes",
)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """What fails inside is tried on purpose: torch need not log each."""
    loggers = [logging.getLogger(name) for name in _LOUD]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def fails(call: Any, args: Any, kwargs: Any, sizes: Mapping[tuple[int, int], int]) -> bool:
    """Whether a call raises where its arguments have other sizes, given by leaf and dim; tried on fake tensors."""
    flat, spec = pytree.tree_flatten((args, kwargs))
    mode = FakeTensorMode(allow_non_fake_inputs=True, static_shapes=True)

    def made(index: int, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        shape = [sizes.get((index, i), n) for i, n in enumerate(leaf.shape)]
        return torch.empty(shape, dtype=leaf.dtype, device=leaf.device)

    try:
        with quietly(), unheard(), mode, torch.no_grad():
            args, kwargs = pytree.tree_unflatten([made(i, x) for i, x in enumerate(flat)], spec)
            call(*args, **kwargs)
    except Exception:
        return True
    return False


def _contiguous(sizes: list[Any]) -> list[Any]:
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= size if type(size) is int and size > 1 else 1
    return strides[::-1]


def is_aten(target: Any) -> bool:
    """Whether a call is one of torch's own kernels."""
    return isinstance(target, torch._ops.OpOverload) and target.namespace == "aten"


def call(target: Any, args: Any, kwargs: Any) -> Any:
    if isinstance(target, str):
        return getattr(args[0], target)(*args[1:], **kwargs)
    return target(*args, **kwargs)


def map_leaves(function: Any, tree: Any) -> Any:
    """A tree map that looks into slices as well."""

    def leaf(value: Any) -> Any:
        if isinstance(value, slice):
            return slice(function(value.start), function(value.stop), function(value.step))
        return function(value)

    return pytree.tree_map(leaf, tree)


def leaves(tree: Any) -> list[Any]:
    """Those that `map_leaves` maps."""
    found: list[Any] = []
    for value in pytree.tree_leaves(tree):
        found.extend((value.start, value.stop, value.step) if isinstance(value, slice) else (value,))
    return found
