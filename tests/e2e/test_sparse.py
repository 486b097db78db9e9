"""Features with 0, 1 or 2 ids: empty is not a behavior."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree as pytree

import anyshape
from anyshape._torch.fake_runs import concrete, verify
from anyshape.testing import expect_programs

IDS, WIDTH = 10, 4
BATCHES = (1, 2, 3, 7)


def counts(batch: int) -> torch.Tensor:
    return torch.tensor([random.randrange(3) for _ in range(batch)])


def copied(tree: Any) -> Any:
    """The same call with leaves of its own."""
    return pytree.tree_map_only(torch.Tensor, lambda x: x.detach().clone().requires_grad_(x.requires_grad), tree)


def outcome(f: Callable[..., Any], args: Any) -> tuple[Any, list[Any]]:
    """What a call gives, and the gradients of all that wants one."""
    result = f(*args)
    wanted = [x for x in pytree.tree_leaves(args) if isinstance(x, torch.Tensor) and x.requires_grad]
    wanted += list(f.parameters()) if isinstance(f, nn.Module) else []
    if not wanted:
        return result.detach(), []
    weight = torch.arange(1.0, 1.0 + result.numel()).view(result.shape)
    return result.detach(), list(torch.autograd.grad((result * weight).sum(), wanted, allow_unused=True))


def check(f: Any, plain: Any, args: Any) -> None:
    torch.testing.assert_close(outcome(f, copied(args)), outcome(plain, copied(args)), equal_nan=True)


class Sparse(nn.Module):
    def __init__(self, features: int, kind: str) -> None:
        super().__init__()
        self.kind = kind
        make = nn.Embedding if kind == "embedding" else lambda ids, width: nn.EmbeddingBag(ids, width, mode=kind)
        self.tables = nn.ModuleList(make(IDS, WIDTH) for _ in range(features))
        self.top = nn.Linear(features * WIDTH, 1)

    def forward(self, ids: list[torch.Tensor], starts: list[torch.Tensor]) -> torch.Tensor:
        if self.kind == "embedding":
            return self.top(torch.cat([table(i).sum(1) for table, i in zip(self.tables, ids, strict=True)], 1))
        found = [table(i, s) for table, i, s in zip(self.tables, ids, starts, strict=True)]
        return self.top(torch.cat(found, 1))

    def call(self, batch: int) -> Any:
        if self.kind == "embedding":
            return [torch.randint(0, IDS, (batch, random.randrange(3))) for _ in self.tables], []
        each = [counts(batch) for _ in self.tables]
        return [torch.randint(0, IDS, (int(n.sum()),)) for n in each], [n.cumsum(0) - n for n in each]


@pytest.mark.parametrize(("kind", "first"), [("embedding", 1), ("sum", 1), ("mean", 2), ("max", 1)])
def test_features_with_any_number_of_ids_are_one_program(kind: str, first: int) -> None:
    random.seed(0)
    model = Sparse(8, kind)
    f = anyshape.compile(model, backend="aot_eager")
    with expect_programs(1, f):
        for number in range(12):
            check(f, model, model.call(BATCHES[number % 4] if number else first))
    assert not f.fallbacks


@pytest.mark.parametrize("kind", ["embedding", "mean"])
def test_they_are_one_program_with_inductor(kind: str) -> None:
    random.seed(1)
    model = Sparse(3, kind)
    f = anyshape.compile(model, specialize="never")
    with expect_programs(1, f):
        for number in range(12):
            check(f, model, model.call(BATCHES[number % 4]))
    assert not f.fallbacks


def bag(mode: str = "sum", *, last: bool = False, padding: int | None = None, weighted: bool = False) -> Any:
    def fn(table: Any, ids: Any, starts: Any, *weights: Any) -> Any:
        given = {"per_sample_weights": weights[0]} if weights else {}
        return F.embedding_bag(ids, table, starts, mode=mode, include_last_offset=last, padding_idx=padding, **given)

    def args(batch: int) -> Any:
        each = counts(batch)
        ends = each.cumsum(0)
        total = int(each.sum())
        starts = torch.cat([ends.new_zeros(1), ends]) if last else ends - each
        weights = [torch.rand(total, requires_grad=True)] if weighted else []
        return torch.randn(IDS, WIDTH, requires_grad=True), torch.randint(0, IDS, (total,)), starts, *weights

    return fn, args


def rows_of_bags(mode: str) -> Any:
    def fn(table: Any, ids: Any) -> Any:
        return F.embedding_bag(ids, table, mode=mode)

    def args(batch: int) -> Any:  # eager takes no rows, and does not take rows without an id
        rows = batch if random.randrange(4) else 0
        return torch.randn(IDS, WIDTH, requires_grad=True), torch.randint(0, IDS, (rows, random.randrange(1, 3)))

    return fn, args


def jagged() -> Any:
    """Values and lengths of several features in one tensor, a table and weights for each, pooled and concatenated."""

    def fn(tables: Any, values: Any, lengths: Any, weights: Any) -> Any:
        pooled = []
        for table, v, n, w in zip(tables, values, lengths, weights, strict=True):
            ends = torch.cat([n.new_zeros(1), n.cumsum(0)])
            pooled.append(F.embedding_bag(v, table, ends, mode="sum", per_sample_weights=w, include_last_offset=True))
        return torch.cat(pooled, 1)

    def args(batch: int) -> Any:
        lengths = [counts(batch) for _ in range(3)]
        values = [torch.randint(0, IDS, (int(n.sum()),)) for n in lengths]
        weights = [torch.rand(len(v), requires_grad=True) for v in values]
        return [torch.randn(IDS, WIDTH, requires_grad=True) for _ in lengths], values, lengths, weights

    return fn, args


def jagged_in_one() -> Any:
    def fn(table: Any, values: Any, lengths: Any) -> Any:
        each = lengths.reshape(-1)
        rows = torch.repeat_interleave(torch.arange(each.shape[0]), each, output_size=values.shape[0])
        return torch.zeros(each.shape[0], WIDTH).index_add(0, rows, F.embedding(values, table))

    def args(batch: int) -> Any:
        lengths = counts(3 * batch).view(3, batch)
        return torch.randn(IDS, WIDTH, requires_grad=True), torch.randint(0, IDS, (int(lengths.sum()),)), lengths

    return fn, args


def segments(reduce: str) -> Any:
    def fn(data: Any, lengths: Any) -> Any:
        return torch.segment_reduce(data, reduce, lengths=lengths, unsafe=True)

    def args(batch: int) -> Any:
        lengths = counts(batch)
        return torch.randn(int(lengths.sum()), WIDTH, requires_grad=True), lengths

    return fn, args


def at_rows(fn: Callable[..., Any], *, reads: bool = False) -> Any:
    def args(batch: int) -> Any:
        count = random.randrange(3)
        rows = torch.randperm(batch + 2)[:count]
        given = torch.randn(batch + 2, WIDTH, requires_grad=True), rows
        return given if reads else (*given, torch.randn(count, WIDTH, requires_grad=True))

    return fn, args


CASES: dict[str, Any] = {
    "bags with the last end": bag(last=True),
    "means with padding": bag("mean", padding=3),
    "largest, with padding and the last end": bag("max", padding=3, last=True),
    "weighted bags": bag(weighted=True),
    "rows of bags": rows_of_bags("mean"),
    "jagged features": jagged(),
    "jagged features in one": jagged_in_one(),
    "segments": segments("mean"),
    "largest of segments": segments("max"),
    "index_add": at_rows(lambda x, i, s: x.index_add(0, i, s)),
    "index_put": at_rows(lambda x, i, s: torch.index_put(x, (i,), s, accumulate=True)),
    "scatter_reduce": at_rows(lambda x, i, s: x.scatter_reduce(0, i.unsqueeze(1).expand(-1, WIDTH), s, "amax")),
    "index_select": at_rows(lambda x, i: x.index_select(0, i), reads=True),
    "gather": at_rows(lambda x, i: x.gather(0, i.unsqueeze(1)), reads=True),
}


@pytest.mark.parametrize("name", CASES)
def test_calls_with_no_indices_are_the_program_of_those_with_some(name: str) -> None:
    random.seed(2)
    fn, args = CASES[name]
    f = anyshape.compile(fn, backend="aot_eager")
    with expect_programs(1, f):
        for number in range(10):
            check(f, fn, args(BATCHES[number % 4]))
    assert not f.fallbacks


REFUSED: dict[str, Callable[..., Any]] = {
    "embedding": lambda table, ids: F.embedding(ids, table),
    "embedding_bag": lambda table, ids: F.embedding_bag(ids, table, ids.new_zeros(1), mode="sum"),
    "largest of a bag": lambda table, ids: F.embedding_bag(ids, table, ids.new_zeros(1), mode="max"),
    "index_select": lambda table, ids: table.index_select(0, ids),
    "gather": lambda table, ids: table.gather(0, ids.unsqueeze(1)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_index_into_nothing_and_one_out_of_range_are_refused_as_in_eager(name: str) -> None:
    fn = REFUSED[name]
    f = anyshape.compile(fn, backend="aot_eager")
    table, ids = torch.randn(IDS, WIDTH), torch.tensor([1, 2])
    with expect_programs(1, f):
        for given in [(table, ids), (table, ids[:0]), (table[:0], ids[:0])]:
            torch.testing.assert_close(f(*given), fn(*given))
        for refused in [(table, torch.tensor([1, IDS])), (table[:0], ids), (table[:0], ids[:1])]:
            with pytest.raises(Exception) as eager:
                fn(*refused)
            with pytest.raises(eager.type):
                f(*refused)


@pytest.mark.parametrize("kind", ["embedding", "sum", "mean"])
def test_gradients_that_are_sparse_are_of_one_program(kind: str) -> None:
    random.seed(0)
    own = nn.Embedding(IDS, WIDTH, sparse=True) if kind == "embedding" else None
    model = own or nn.EmbeddingBag(IDS, WIDTH, mode=kind, sparse=True)
    f = anyshape.compile(model, backend="aot_eager")
    with expect_programs(1, f):
        for batch, most in ((3, 3), (1, 2), (2, 1), (7, 3), (1, 1), (0, 1), (5, 3)):
            each = torch.tensor([random.randrange(most) for _ in range(batch)], dtype=torch.long)
            ids = torch.randint(0, IDS, (int(each.sum()),))
            args = (ids,) if own else (ids, each.cumsum(0) - each)
            grads = []
            for call in (f, model):
                result = call(*args)
                (grad,) = torch.autograd.grad(result.square().sum(), list(model.parameters()))
                assert grad.layout is torch.sparse_coo
                grads += [(result.detach(), grad.coalesce().indices(), grad.coalesce().values())]
            torch.testing.assert_close(*grads)
    assert not f.fallbacks and not f.programs[0].untold


def test_a_sparse_result_is_verified_by_all_its_sizes() -> None:
    """At other sizes a capture that is wrong about one of them does not hold."""
    f = anyshape.compile(nn.Embedding(IDS, WIDTH, sparse=True), backend="aot_eager")
    f(torch.zeros(5, dtype=torch.long))
    (program,) = f._engine.programs
    (node,) = [n for n in program.recording.aten if isinstance(n.result, concrete.SparseSnapshot)]
    ((symbol,),) = [expr.free_symbols for expr in node.result.of_values[:1]]
    right = node.result
    for wrong in (
        {"sizes": (sympy.Integer(IDS), symbol)},
        {"of_indices": (sympy.Integer(1), symbol + 1)},
        {"of_values": (symbol + 1, sympy.Integer(WIDTH))},
        {"of_values": (symbol,)},
        {"dtype": torch.float64},
    ):
        node.result = dataclasses.replace(right, **wrong)
        assert all(verify.differs(node, {symbol: sympy.Integer(n)}) for n in (0, 1, 7))
        assert verify.follow(node, {symbol: sympy.Integer(7)}).difference is not None
    node.result = right
    for n in (0, 1, 7):
        assert verify.follow(node, {symbol: sympy.Integer(n)}).difference is None
