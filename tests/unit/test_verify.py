"""What verification can tell of other sizes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import sympy
import torch

from anyshape._torch.fake_runs import concrete, verify
from anyshape.assumptions.answers import NodeRecord

X, INDEX = torch.ones(4, 3), torch.tensor([0, 1])
aten = torch.ops.aten


def record(call: Any, *args: Any) -> NodeRecord:
    node = NodeRecord(call)
    node.args, node.kwargs = concrete.snapshot((args, {}))
    node.result = concrete.snapshot(call(*args))
    return node


S, N = sympy.symbols("s n", integer=True)
INTO_NOTHING = "indices into nothing"


def symbolic(node: NodeRecord, dims: dict[int, sympy.Symbol]) -> NodeRecord:
    """The record with the sizes of these arguments (by place among the tensors) free: their first dim is a symbol."""
    place = iter(range(9))

    def leaf(value: Any) -> Any:
        if not isinstance(value, concrete.TensorSnapshot):
            return value
        symbol = dims.get(next(place))
        return value if symbol is None else dataclasses.replace(value, sizes=(symbol, *value.sizes[1:]))

    node.args = concrete.map_leaves(leaf, node.args)
    return node


@pytest.mark.parametrize(
    "call, args",
    [
        (aten.index.Tensor, (X, [INDEX])),
        (aten.take.default, (X, INDEX)),
        (aten.index_select.default, (X, 0, INDEX)),
        (aten.embedding.default, (X, INDEX)),
    ],
    ids=str,
)
def test_whether_there_is_anything_to_read_is_a_fact(call: Any, args: Any) -> None:
    """It is in no metadata of the result: indices are read from nothing, or from something."""
    node = symbolic(record(call, *args), {0: S, 1: N})
    result = node.result
    free = tuple(N if i == 0 else n for i, n in enumerate(result.sizes))
    node.result = dataclasses.replace(result, sizes=free)
    for rows, count, holds in ((4, 2, True), (0, 2, False), (0, 0, True), (5, 0, True)):
        sizes = {S: sympy.Integer(rows), N: sympy.Integer(count)}
        verdict = verify.follow(node, sizes)
        assert verdict.facts is not None
        assert (verdict.difference is None) is holds
        assert all(fact.xreplace(sizes) == sympy.true for fact in verdict.facts)
        for other, serves in (((7, 3), True), ((0, 3), False), ((0, 0), True), ((9, 0), True)):
            at = {S: sympy.Integer(other[0]), N: sympy.Integer(other[1])}
            if all(fact.xreplace(at) == sympy.true for fact in verdict.facts):
                assert serves is holds, (rows, count, other, verdict.facts)


@pytest.mark.parametrize("node", [record(aten.sin.default, X), record(aten.index_fill.int_Scalar, X, 0, INDEX, 0)])
def test_others_hold_wherever_the_answers_do(node: NodeRecord) -> None:
    assert verify.follow(node, {}) == verify.Verdict(None, ())


def test_what_is_compared_is_a_question_too() -> None:
    """A prediction that is right at the sizes at hand by chance is right where they are those, and not elsewhere."""
    node = symbolic(record(aten.sin.default, X), {0: S})  # predicts 4 rows, whatever S is
    four, five = {S: sympy.Integer(4)}, {S: sympy.Integer(5)}
    chance, other = verify.follow(node, four), verify.follow(node, five)
    assert chance.difference is None and chance.facts is not None
    assert not all(fact.xreplace(five) == sympy.true for fact in chance.facts)
    assert other.difference is not None and other.facts is not None
    assert not all(fact.xreplace(four) == sympy.true for fact in other.facts)


def test_a_division_of_a_negative_number_is_told_at_its_sizes_only() -> None:
    node = record(aten.sin.default, X)
    half = sympy.Function("FloorDiv")(S, 2)
    node.args = concrete.map_leaves(lambda v: dataclasses.replace(v, sizes=(half, *v.sizes[1:])), node.args)
    assert verify.follow(node, {S: sympy.Integer(8)}, signed=frozenset([S])).facts is None
