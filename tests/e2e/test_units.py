"""Sizes of 1 in a first call: the one that a branch is about is a behavior, those beside it stay free."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func

import anyshape


def _check(fn: Any, sizes: list[tuple[int, int]], *, inputs: int, programs: int, **options: Any) -> None:
    f = anyshape.compile(fn, backend="aot_eager", fullgraph=True, **options)
    for size in sizes:
        given = [torch.randn(*size) for _ in range(inputs)]
        torch.testing.assert_close(f(*given), fn(*given))
    assert f.fallbacks == {}
    assert len(f.programs) == programs, [p.behavior for p in f.programs]


def test_the_batch_stays_free_where_the_length_is_asked_about() -> None:
    def decodes(x: torch.Tensor) -> torch.Tensor:
        return x.squeeze(1) * 2 if x.shape[1] == 1 else x.cumsum(1)

    _check(decodes, [(1, 1), (3, 1), (7, 1), (1, 5), (4, 3)], inputs=1, programs=2)


def test_a_size_that_must_equal_one_without_a_stand_in_has_none() -> None:
    def masked(x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        scores = x.mT @ keys if x.shape[1] > 1 else x.mT.contiguous() @ keys
        return torch.bmm(scores[None], keys.mT[None])

    _check(masked, [(1, 1), (3, 1), (1, 5), (4, 3)], inputs=2, programs=1)  # both sides compute the same


@pytest.mark.slow
def test_an_encoder_that_begins_with_one_token() -> None:
    """Where batch and length are both taken as 1, the batch of 1 gets a program of its own, and there are three."""
    pytest.importorskip("transformers")
    from benchmarks.zoo import measure

    row = measure.ROWS["bert"]
    model = row.build().eval()
    f = anyshape.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        for size in ((1, 1), (2, 1), (1, 16), (3, 5)):
            want, got = (measure.seeded(call, **row.inputs(*size)) for call in (model, f))
            assert measure.difference(got, want) == ""
    assert f.fallbacks == {} and len(f.programs) == 2


def test_the_same_by_declared_names() -> None:
    def decodes(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[1] == 1 else x.cumsum(1)

    _check(
        decodes,
        [(1, 1), (3, 1), (1, 5), (4, 3)],
        inputs=1,
        programs=2,
        shapes={"x": "batch seq"},
        where=["1 <= seq <= 64"],
    )


def test_a_truth_about_sizes_is_no_argument_of_a_kernel() -> None:
    """`n > 1 and ...` is a bool for a long text and a symbol for a short one."""

    def attends(x: torch.Tensor) -> torch.Tensor:
        q = x[None, :, :, None].expand(1, x.shape[0], x.shape[1], 4)
        causal = q.shape[2] > 1 and x.dim() == 2
        return F.scaled_dot_product_attention(q, q, q, is_causal=causal)

    _check(attends, [(1, 1), (2, 1), (3, 6), (1, 4)], inputs=1, programs=2)


@pytest.mark.parametrize("own_mask", [True, False])
def test_masked_attention_has_eagers_kernel(own_mask: bool) -> None:
    """What is known of a length after the capture is known to AOTAutograd: it takes the fused kernel only if not 0."""
    called = []

    def remember(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        called.extend(str(n.target) for n in graph.graph.nodes if n.op == "call_function")
        return make_boxed_func(graph.forward)

    def attends(x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        q = x.unflatten(-1, (2, 8)).transpose(1, 2)
        mask = keep if own_mask else keep[:, 0, 0, None, None, :].expand(-1, 1, x.shape[1], -1)
        return F.scaled_dot_product_attention(q, q, q, attn_mask=mask)

    f = anyshape.compile(attends, backend=aot_autograd(fw_compiler=remember), fullgraph=True)
    with torch.no_grad():
        for rows, length in [(3, 5), (2, 7), (4, 2)]:
            args = torch.randn(rows, length, 16), torch.ones(rows, 1, length, length, dtype=torch.bool)
            got, wanted = f(*args), attends(*args)
            torch.testing.assert_close(got, wanted)
            assert got.stride() == wanted.stride()
    assert any("flash_attention_for_cpu" in name for name in called)
    assert len(f.programs) == 1


def test_two_bounds_that_meet_are_a_number() -> None:
    """`n <= 1` and `n != 0`: what is left asks nothing more about n."""

    def narrow(x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] <= 1 and x.shape[1] != 0:
            return x.reshape(x.shape[0] * x.shape[1], -1) + 1
        return x * 2

    f = anyshape.compile(narrow, backend="aot_eager", fullgraph=True)
    x = torch.randn(3, 1)
    torch.testing.assert_close(f(x), narrow(x))
    (program,) = f.programs
    assert [p.text for p in program.predicates] == ["x.shape[1] <= 1", "x.shape[1] != 0"]


def test_inside_vmap() -> None:
    def each(x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda row: row * row.sum())(x)

    f = anyshape.compile(each, backend="aot_eager", fullgraph=True)
    for size in ((3, 4), (5, 2), (2, 9)):
        x = torch.randn(*size)
        torch.testing.assert_close(f(x), each(x))
    assert f.fallbacks == {} and len(f.programs) == 1


@pytest.mark.parametrize("first", [0, 1])
def test_code_is_planned_for_more_than_one(first: int) -> None:
    """Also where the program was captured with that very size."""
    planned: list[int] = []

    def compiler(graph: Any, inputs: Any) -> Any:
        sizes = [n.node for n in inputs if isinstance(n, torch.SymInt)]
        planned.extend(int(n.expr.xreplace(n.shape_env.backed_var_to_val)) for n in sizes)
        return make_boxed_func(graph.forward)

    def fn(x: torch.Tensor) -> torch.Tensor:
        y, out = x * 2, torch.empty(0)
        torch.cat([y, y], out=out)
        return out + y.sum()

    f = anyshape.compile(fn, backend=aot_autograd(fw_compiler=compiler), specialize="never")
    for n in (first, 4):
        x = torch.randn(n, 3)
        assert torch.equal(f(x), fn(x))
    assert planned
    assert min(planned) > 1


def test_sizes_of_a_length_of_one_are_no_quotients() -> None:
    """To one loop of torch's `n == 1` and `16 * n == 16` were two questions with two answers (2.11): `16 // n` heads."""
    linear = torch.nn.Linear(16, 16, bias=False)

    def turned(x: torch.Tensor) -> torch.Tensor:
        heads = linear(x).view(*x.shape[:-1], -1, 8).transpose(1, 2)
        half = heads.shape[-1] // 2
        heads = heads * torch.cat((-heads[..., half:], heads[..., :half]), dim=-1)
        return heads.squeeze(2) if x.shape[1] == 1 else heads

    f = anyshape.compile(turned, backend="aot_eager", fullgraph=True)
    for batch, length in ((1, 8), (1, 1), (2, 1), (3, 5)):
        x = torch.randn(batch, length, 16)
        torch.testing.assert_close(f(x), turned(x))
    assert f.fallbacks == {}
    assert len(f.programs) == 2, [p.behavior for p in f.programs]
