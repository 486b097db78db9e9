"""Verification of a node: its fake run at other sizes against the captured metadata, strides and aliases.

Owns the comparison of a concrete fake run of one node with what the capture predicts there: shape, dtype, strides that
address something, memory shared with the arguments. A node with equal metadata is the same node at those sizes.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import sympy

from anyshape._torch.fake_runs import concrete, index_reads
from anyshape.assumptions.answers import NodeRecord
from anyshape.foundation import interrupts


@dataclasses.dataclass(frozen=True)
class Difference:
    """Why a node does not hold at some sizes."""

    what: str
    predicted: str
    real: str
    only_strides: bool = False
    raised: bool = False  # the call, and not the comparison, which had nothing to compare

    def __str__(self) -> str:
        return f"{self.what}: captured for {self.predicted}, eager gives {self.real}"


def differs(
    node: NodeRecord, sizes: Mapping[sympy.Basic, sympy.Basic], *, strict: bool = False, mode: Any = None
) -> Difference | None:
    """Run `node` at exactly `sizes`; None if the capture's prediction holds there.

    `strict` also wants the same aten calls: for a node that chose its way by a size other than 0 and 1. `mode` is
    `concrete.exact_mode()` for several nodes.
    """
    try:
        return _compare(node, concrete.ConcreteRun(sizes, mode), strict=strict)
    except concrete.NotPlain as error:
        return Difference(node.name, "the sizes seen", f"unknown: {error}")


def _unrepeatable(node: NodeRecord) -> Difference:
    return Difference(node.name, "the sizes seen", "unknown: the call cannot be repeated on its own")


def compare_results(node: NodeRecord, run: Any, result: Any) -> list[Difference]:
    """All that tells a result from the one captured, shared memory apart."""
    predicted, real = concrete.leaves(node.result), concrete.leaves(result)
    if len(predicted) != len(real):
        return [Difference(node.name, f"{len(predicted)} results", f"{len(real)}")]
    found = [_leaf(node, run, want, got, {}, {}) for want, got in zip(predicted, real, strict=True)]
    return [difference for difference in found if difference is not None]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether a node holds at some sizes, and the facts about them under which the verdict is the same elsewhere."""

    difference: Difference | None
    facts: tuple[sympy.Basic, ...] | None  # None where the verdict is for these very sizes
    why: str = ""  # it is


def follow(
    node: NodeRecord,
    sizes: Mapping[sympy.Basic, sympy.Basic],
    *,
    signed: frozenset[sympy.Basic] = frozenset(),
    strict: bool = False,
) -> Verdict:
    """Run `node` on symbolic sizes, each question answered as it is at `sizes`, and compare with the prediction.

    What is compared is asked as well, so the verdict is that of all sizes that give the same answers. Where that cannot
    be told, the node is run at exactly `sizes`. `signed` are symbols that may be negative.
    """
    if node.opaque:
        return Verdict(_unrepeatable(node), ())
    run = concrete.TracedRun(sizes, signed)
    try:
        with concrete.quietly():
            difference = _compare(node, run, strict=strict)
            facts = run.questions()
    except concrete.NotPlain as error:
        return Verdict(differs(node, sizes, strict=strict), None, str(error))
    except Exception as error:  # of the comparison, which asked what has no answer
        interrupts.pass_on(error)
        return Verdict(differs(node, sizes, strict=strict), None, f"{type(error).__name__}: {error}")
    if difference is None or not difference.raised:
        return Verdict(difference, facts)
    again = differs(node, sizes, strict=strict)  # symbolic sizes may have been what was raised about
    if again is not None and again.raised and again.predicted == difference.predicted == "a result":
        return Verdict(again, facts)
    return Verdict(again, None, difference.real)


def distinct(nodes: Iterable[NodeRecord]) -> list[NodeRecord]:
    """Nodes without those that are the same call on other memory."""
    return list({identity(node): node for node in nodes}.values())


def identity(node: NodeRecord, names: Mapping[sympy.Basic, sympy.Basic] | None = None) -> Hashable:
    """What the same call on other memory has in common: its memory is numbered from 0, its sizes go by `names`."""
    numbers: dict[int, int] = {}
    tree = node.args, node.kwargs, node.result
    named: Mapping[sympy.Basic, sympy.Basic] = names or {}

    def renamed(exprs: Iterable[sympy.Basic]) -> tuple[sympy.Basic, ...]:
        return tuple(e.xreplace(named) for e in exprs) if named else tuple(exprs)

    def leaf(value: Any) -> Hashable:
        if isinstance(value, concrete.TensorSnapshot):
            (offset,) = renamed([value.offset])
            storage = numbers.setdefault(value.storage, len(numbers))
            sizes, strides = renamed(value.sizes), renamed(value.strides)
            return dataclasses.replace(value, storage=storage, sizes=sizes, strides=strides, offset=offset)
        if isinstance(value, concrete.SparseSnapshot):
            sizes, indices, values = map(renamed, (value.sizes, value.of_indices, value.of_values))
            return dataclasses.replace(value, sizes=sizes, of_indices=indices, of_values=values)
        if isinstance(value, concrete.ScalarSnapshot):
            return dataclasses.replace(value, expr=renamed([value.expr])[0])
        return (type(value), value) if isinstance(value, Hashable) else repr(value)

    structure = repr(concrete.map_leaves(lambda value: None, tree))
    seen = (node.opaque, node.sharing_shows, node.leaf_written, node.strides_show)
    return node.call, structure, tuple(map(leaf, concrete.leaves(tree))), repr(node.context), seen


def symbols(node: NodeRecord) -> list[sympy.Basic]:
    """Every symbol in what a node was given and gave, in an order that does not go by their names.

    Of a node that chose its way by sizes also those it asked about.
    """
    exprs: list[sympy.Basic] = []
    for value in concrete.leaves((node.args, node.kwargs, node.result)):
        if isinstance(value, concrete.TensorSnapshot):
            exprs += [*value.sizes, *value.strides, value.offset]
        elif isinstance(value, concrete.SparseSnapshot):
            exprs += [*value.sizes, *value.of_indices, *value.of_values]
        elif isinstance(value, concrete.ScalarSnapshot):
            exprs.append(value.expr)
    exprs += node.decisions if node.choices else ()
    return list(dict.fromkeys(s for e in exprs for s in sorted(e.free_symbols, key=str)))


def _compare(node: NodeRecord, run: concrete.ConcreteRun, *, strict: bool = False) -> Difference | None:
    if node.opaque:
        return _unrepeatable(node)
    try:
        context = node.context() if node.context else contextlib.nullcontext()
        with run.running(), context, run.mapping((node.args, node.kwargs)):
            args = run.make(node.args)
            kwargs = run.make(node.kwargs)
            given = [concrete.physical(t) for t in concrete.leaves((args, kwargs)) if hasattr(t, "untyped_storage")]
            before = {id(t): concrete.storage(t) for t in given}
            read = index_reads.of(node.call, args, kwargs)
            with concrete.OpLog() as log:
                result = concrete.call(node.call, args, kwargs)
            real = [_physical(x) for x in concrete.leaves(result)]
    except concrete.NotPlain:
        raise
    except Exception as error:
        interrupts.pass_on(error)
        if isinstance(error, ZeroDivisionError) and node.name in _DIVIDE_BY_COUNTS:
            return None
        return Difference(node.name, "a result", f"{type(error).__name__}: {str(error)[:200]}", raised=True)
    if not run.is_exact(real):
        raise concrete.NotPlain("a division of a number that may be negative")
    if read is not None and read.into_nothing(run.is_zero):
        return Difference(node.name, "indices into something", "indices into nothing")
    if _normalises_nothing(run, node, given):
        return Difference(node.name, "something to normalise", "nothing")
    predicted = concrete.leaves(node.result)
    if len(predicted) != len(real):
        return Difference(node.name, f"{len(predicted)} results", f"{len(real)}")
    shares = {storage: i for i, storage in reversed(list(enumerate(before.values())))}
    arguments = [t for t in concrete.leaves((node.args, node.kwargs)) if isinstance(t, concrete.TensorSnapshot)]
    shared = {t.storage: i for i, t in reversed(list(enumerate(arguments)))}
    for want, (got, dim) in zip(predicted, real, strict=True):
        if isinstance(want, concrete.TensorSnapshot) and want.mapped != dim:
            return Difference(node.name, f"dim {want.mapped} mapped", f"{dim}")
        try:
            difference = _leaf(node, run, want, got, shared, shares)
            difference = difference or _place(node, run, want, got, arguments, given)
        except ZeroDivisionError:  # a size such as `n // m` has no value where m is 0
            difference = Difference(node.name, "a size", "a division by zero", raised=True)
        if difference:
            return difference
    if strict and node.log is not None and not _same_calls(run, node.log, log.calls):
        return Difference(node.name, f"{len(node.log)} aten calls", f"{len(log.calls)} others")
    return None


# Fake kernels that divide by a number of elements; the kernels themselves give nothing where there are none.
_DIVIDE_BY_COUNTS = (
    "native_batch_norm_backward",
    "mse_loss_backward",
    "smooth_l1_loss_backward",
    "huber_loss_backward",
)


def _normalises_nothing(run: concrete.ConcreteRun, node: NodeRecord, tensors: list[Any]) -> bool:
    """Whether statistics would be taken of nothing: eager has a way around the kernel, which refuses it."""
    name = node.name
    if "batch_norm" not in name or "backward" in name or not tensors:
        return False
    trains = next((x for x in concrete.leaves((node.args, node.kwargs)) if type(x) is bool), False)
    return trains and run.is_zero(tensors[0].numel()) is True


def _same_calls(run: Any, captured: Any, real: Any) -> bool:
    """Whether two lists of aten calls are one at these sizes."""
    if len(captured) != len(real):
        return False
    for (call, numbers), (other, others) in zip(captured, real, strict=True):
        if call is not other or len(numbers) != len(others):
            return False
        if any(run.unequal(run.rename(a), b) for a, b in zip(numbers, others, strict=True)):
            return False
    return True


def _leaf(
    node: NodeRecord, run: Any, want: Any, got: Any, shared: dict[int, int], shares: dict[int, int]
) -> Difference | None:
    if isinstance(want, concrete.TensorSnapshot):
        if not hasattr(got, "untyped_storage"):
            return Difference(node.name, "a tensor", type(got).__name__)
        sizes = [run.rename(s) for s in want.sizes]
        real = [concrete.number_expr(s) for s in got.shape]
        if len(sizes) != len(real) or any(run.unequal(a, b) for a, b in zip(sizes, real, strict=True)):
            return Difference(node.name, f"shape {tuple(sizes)}", f"{tuple(real)}")
        # No kernel picks its dtype by a size; layer_norm_backward's fake one does, of nothing (torch 2.11 to 2.15).
        same_dtype = want.dtype == got.dtype or concrete.is_aten(node.call)
        if not same_dtype or want.device != got.device:
            return Difference(node.name, f"{want.dtype} on {want.device}", f"{got.dtype} on {got.device}")
        if want.conj != got.is_conj() or want.negated != got.is_neg():
            return Difference(node.name, "a lazy conjugate", "another")
        # Where the layout may be any, only the strides of views tell which memory is meant.
        compared = node.strides_show or (node.sharing_shows and concrete.storage(got) in shares)
        strides = [run.rename(n) for n in want.strides] if compared and 0 not in real else []
        actual = [concrete.number_expr(s) for s in got.stride()]
        lying_otherwise = any(map(run.unequal_strides, strides, actual, real))
        if lying_otherwise and not _is_empty(run, real):
            return Difference(node.name, f"strides {tuple(strides)}", f"{tuple(actual)}", only_strides=True)
        # Of nothing it shows in one way: autograd refuses writes to a leaf and its views, however empty.
        differs = node.sharing_shows and shared.get(want.storage) != shares.get(concrete.storage(got))
        if differs and (node.leaf_written or not _is_empty(run, real)):
            return Difference(node.name, "memory shared one way", "another")
        return None
    if isinstance(want, concrete.SparseSnapshot):
        return _sparse_leaf(node, run, want, got)
    if isinstance(want, concrete.ScalarSnapshot):
        value = run.rename(want.expr)
        return Difference(node.name, f"{value}", f"{got}") if run.unequal(value, concrete.number_expr(got)) else None
    if isinstance(want, (int, float, bool, str)) and want != got:
        return Difference(node.name, f"{want}", f"{got}")
    return None


def _sparse_leaf(node: NodeRecord, run: Any, want: concrete.SparseSnapshot, got: Any) -> Difference | None:
    if not concrete.is_sparse(got):
        return Difference(node.name, "a sparse tensor", type(got).__name__)
    real = concrete.sparse_snapshot(got)
    if (want.dtype, want.device) != (real.dtype, real.device):
        return Difference(node.name, f"sparse {want.dtype} on {want.device}", f"{real.dtype} on {real.device}")
    pairs = (want.sizes, real.sizes), (want.of_indices, real.of_indices), (want.of_values, real.of_values)
    for predicted, found in pairs:
        sizes = tuple(map(run.rename, predicted))
        if len(sizes) != len(found) or any(map(run.unequal, sizes, found)):
            return Difference(node.name, f"sizes {sizes} of a sparse tensor", f"{found}")
    return None


def _is_empty(run: concrete.ConcreteRun, shape: Iterable[Any]) -> bool:
    return any(run.is_zero(n) for n in shape)


def _place(
    node: NodeRecord, run: Any, want: Any, got: Any, arguments: Sequence[concrete.TensorSnapshot], given: Sequence[Any]
) -> Difference | None:
    """Where a view begins in the memory of an argument; told if that is the argument of one tensor alone."""
    of = [t for t in arguments if isinstance(want, concrete.TensorSnapshot) and t.storage == want.storage]
    real = [t for t in given if of and concrete.storage(t) == concrete.storage(got)]
    if len(of) != 1 or len(real) != 1 or 0 in map(concrete.number_expr, got.shape):
        return None
    if node.name.startswith("as_strided"):  # counts from where the memory begins
        return None
    captured = run.rename(want.offset - of[0].offset)
    there = concrete.number_expr(got.storage_offset()) - concrete.number_expr(real[0].storage_offset())
    if run.unequal(captured, there) and not _is_empty(run, got.shape):
        return Difference(node.name, f"a view from element {captured} on", f"{there}")
    return None


def _physical(value: Any) -> tuple[Any, int | None]:
    """A result with the dim that vmap maps over, and which that is; asked while vmap is there."""
    return concrete.physical(value), concrete.mapped_dim(value)
