"""As many programs as the function has behaviors, and each call exactly what eager gives."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import anyshape
from anyshape.testing import difference, expect_programs


def check(
    fn: Callable[..., Any],
    calls: Iterable[tuple[Any, ...]],
    *,
    programs: int,
    at_most: bool = False,
    fallbacks: bool = False,
    backend: str = "aot_eager",
    **options: Any,
) -> Any:
    """Compile `fn`, compare each call with eager, count the programs."""
    f = anyshape.compile(fn, backend=backend, **options)
    with expect_programs(programs, at_most=at_most):
        for number, arguments in enumerate(calls):
            text = difference(fn, f, arguments)
            assert text is None, f"call {number}: {text}"
    if not fallbacks:
        assert f.fallbacks == {}
    return f


def seeded(low: int, high: int, count: int, seed: int = 0) -> list[int]:
    return torch.randint(low, high, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


# -- branches of the user's --------------------------------------------------------------------------------------


def test_as_many_programs_as_branches_taken() -> None:
    def fn(x: Tensor) -> Tensor:
        n = x.shape[0]
        if n < 4:
            return x + 1
        if n < 8:
            return x * 2
        return x - 3

    f = check(fn, [(torch.randn(n, 3),) for n in (2, 3, 1, 0)], programs=1)
    with expect_programs(1, f):
        for n in (5, 7, 4):
            assert difference(fn, f, (torch.randn(n, 3),)) is None
    with expect_programs(1, f):
        for n in (8, 100, 9, 5, 2, 0):
            assert difference(fn, f, (torch.randn(n, 3),)) is None


@pytest.mark.parametrize("order", [(0, 1, 2, 5, 9), (9, 5, 2, 1, 0), (1, 9, 0, 5, 2)])
def test_branches_in_any_order(order: tuple[int, ...]) -> None:
    def fn(x: Tensor) -> Tensor:
        if x.shape[0] == 0:
            return x.sum()
        if x.shape[0] == 1:
            return x[0].sum() * 2
        return x[1].sum() * 3

    check(fn, [(torch.randn(n, 3),) for n in order], programs=3)


def test_a_branch_on_two_sizes() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        return x.sum() if x.shape[0] > y.shape[0] else y.sum()

    sizes = [(3, 5), (5, 3), (0, 0), (1, 0), (0, 1), (4, 4), (9, 2)]
    f = check(fn, [(torch.randn(a), torch.randn(b)) for a, b in sizes], programs=2)
    behaviours = {p.behavior for p in f.programs}
    assert len(behaviours) == 2
    assert all("x.shape[0]" in b and "y.shape[0]" in b for b in behaviours)


def test_a_branch_on_parity() -> None:
    def fn(x: Tensor) -> Tensor:
        return x[::2].sum() if x.shape[0] % 2 == 0 else x.sum()

    check(fn, [(torch.randn(n),) for n in (4, 5, 0, 1, 2, 3, 7, 8)], programs=2)


def test_a_branch_knows_its_line() -> None:
    def fn(x: Tensor) -> Tensor:
        if x.shape[1] > 4:
            return x + 1
        return x - 1

    f = check(fn, [(torch.randn(2, n),) for n in (3, 6)], programs=2)
    (predicate,) = f.programs[0].predicates
    assert predicate.asked_by == "user"
    assert predicate.file == __file__
    assert predicate.line == fn.__code__.co_firstlineno + 1


def test_a_loop_over_a_size_has_a_program_for_each_count() -> None:
    def fn(x: Tensor) -> Tensor:
        total = torch.zeros(3)
        for i in range(x.shape[0]):
            total = total + x[i] * (i + 1)
        return total

    check(fn, [(torch.randn(n, 3),) for n in (2, 3, 1, 0, 3, 2)], programs=4)


def test_a_loop_over_one_dim_leaves_the_other_free() -> None:
    def fn(x: Tensor) -> Tensor:
        return sum((row * 2 for row in x.unbind(0)), start=torch.zeros(()))

    check(fn, [(torch.randn(2, n),) for n in (2, 3, 1, 0, 3, 2)], programs=1)


# -- one program for a hundred sizes -----------------------------------------------------------------------------


def test_mlp_over_a_hundred_sizes() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 4), nn.Softmax(-1)).eval()
    check(model, [(torch.randn(n, 8),) for n in range(100)], programs=1)


@pytest.mark.parametrize("first", [0, 1, 7])
def test_mlp_whatever_comes_first(first: int) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    check(model, [(torch.randn(n, 8),) for n in (first, 5, 1, 0, 2, 64)], programs=1)


class CachedAttention(nn.Module):
    """Self-attention that appends to keys and values it is given, and gives them back."""

    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, length, width = x.shape
        q, k, v = (
            t.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for t in self.qkv(x).chunk(3, -1)
        )
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        scores = q @ keys.transpose(-1, -2) / (width // self.heads) ** 0.5
        past = keys.shape[2] - length
        rows = torch.arange(length)[:, None] + past
        scores = scores.masked_fill(torch.arange(keys.shape[2])[None, :] > rows, float("-inf"))
        mixed = (scores.softmax(-1) @ values).transpose(1, 2).reshape(batch, length, width)
        return self.out(mixed), keys, values


def cache_calls(sizes: Iterable[tuple[int, int, int]]) -> Iterable[tuple[Tensor, ...]]:
    for batch, length, past in sizes:
        yield torch.randn(batch, length, 16), torch.randn(batch, 4, past, 4), torch.randn(batch, 4, past, 4)


def test_attention_with_a_cache_over_a_hundred_sizes() -> None:
    sizes = zip(seeded(1, 6, 100, 1), seeded(1, 9, 100, 2), seeded(0, 20, 100, 3), strict=True)
    check(CachedAttention(), cache_calls(sizes), programs=1)


@pytest.mark.slow
@pytest.mark.parametrize("first", [(1, 1, 0), (1, 5, 0), (2, 1, 1), (0, 3, 2), (3, 0, 4)])
def test_attention_whatever_comes_first(first: tuple[int, int, int]) -> None:
    check(CachedAttention(), cache_calls([first, (2, 3, 4), (1, 1, 7), (1, 1, 1), (5, 2, 0)]), programs=1)


def test_attention_decodes_with_its_own_cache() -> None:
    model = CachedAttention().eval()
    f = anyshape.compile(model, backend="aot_eager")
    ours = eager = (torch.zeros(2, 4, 0, 4), torch.zeros(2, 4, 0, 4))
    with torch.no_grad(), expect_programs(1):
        for length in (7, *[1] * 20):
            x = torch.randn(2, length, 16)
            got, *ours = f(x, *ours)
            want, *eager = model(x, *eager)
            torch.testing.assert_close(got, want)
    assert f.fallbacks == {}


def test_scaled_dot_product_attention() -> None:
    def fn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v)

    calls = [
        (torch.randn(b, 2, n, 8), torch.randn(b, 2, m, 8), torch.randn(b, 2, m, 8))
        for b, n, m in itertools.product((2, 1, 3), (5, 1, 2), (4, 1, 7))
    ]
    check(fn, calls, programs=1)


def small_cnn() -> nn.Module:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    ).eval()
    # As it comes, a BatchNorm in eval is all but the identity, and leaving it out would not be noticed.
    for value in (model[1].running_mean, model[1].weight.data, model[1].bias.data):
        value.normal_()
    return model


def test_cnn_over_a_hundred_image_sizes() -> None:
    sizes = zip(seeded(1, 5, 100, 4), seeded(2, 40, 100, 5), seeded(2, 40, 100, 6), strict=True)
    check(small_cnn(), [(torch.randn(b, 3, h, w),) for b, h, w in sizes], programs=1)


@pytest.mark.parametrize("first", [(1, 2, 2), (1, 8, 8), (0, 8, 8), (4, 9, 2)])
def test_cnn_whatever_comes_first(first: tuple[int, int, int]) -> None:
    sizes = [first, (2, 16, 12), (1, 3, 2), (3, 2, 9), (1, 31, 31)]
    check(small_cnn(), [(torch.randn(b, 3, h, w),) for b, h, w in sizes], programs=1)


@torch.library.custom_op("anyshape_tests::every_second", mutates_args=())
def every_second(x: Tensor) -> Tensor:
    return x.new_ones(x.shape[0] // 2)


@every_second.register_fake
def _(x: Tensor) -> Tensor:
    quotient, rest = (x.shape[0] - 2) // 2, (x.shape[0] - 2) % 2
    if rest != 0 and rest < 0:  # as torch 2.11 divides for the sizes of what is pooled
        quotient -= 1
    return x.new_empty(quotient + 1)


def test_a_remainder_that_changes_nothing_is_asked_about() -> None:
    check(lambda x: every_second(x.sin()), [(torch.randn(n),) for n in (8, 9, 2, 3, 15, 32)], programs=1)


def test_channels_last_is_a_layout_of_its_own() -> None:
    model = small_cnn()
    sizes = [(2, 8, 8), (3, 9, 12), (1, 8, 8), (4, 6, 2)]
    calls = [(torch.randn(b, 3, h, w).to(memory_format=torch.channels_last),) for b, h, w in sizes]
    check(model, calls, programs=1)


# -- broadcasts, squeezes, ints ----------------------------------------------------------------------------------


def test_broadcasts_have_a_program_for_each_pattern() -> None:
    patterns = [((3, 4), (3, 4)), ((1, 4), (3, 4)), ((3, 4), (1, 4)), ((3, 1), (1, 4))]
    grown = [tuple(tuple(2 * n if n > 1 else n for n in shape) for shape in p) for p in patterns]

    def fn(x: Tensor, y: Tensor) -> Tensor:
        return x + y

    check(fn, [(torch.randn(a), torch.randn(b)) for a, b in [*patterns, *grown, *patterns]], programs=4)


def test_ones_on_both_sides_are_no_broadcast() -> None:
    sizes = [(3, 4), (1, 4), (3, 1), (1, 1), (0, 4), (0, 0), (5, 5)]
    check(lambda x, y: x * y, [(torch.randn(s), torch.randn(s)) for s in sizes], programs=1)


def test_a_broadcast_written_down_is_one_program() -> None:
    check(
        lambda x, y: x[:, None] + y[None, :],
        [(torch.randn(a), torch.randn(b)) for a, b in [(3, 4), (1, 4), (3, 1), (1, 1), (0, 2), (2, 0)]],
        programs=1,
    )


@pytest.mark.parametrize("order", [(5, 1, 0, 7, 2), (1, 5, 0, 7, 2), (0, 1, 5, 7, 2)])
def test_squeeze_has_two(order: tuple[int, ...]) -> None:
    check(lambda x: x.squeeze(1) + 1, [(torch.randn(3, n, 2),) for n in order], programs=2)


def test_squeeze_of_all_dims_has_one_for_each_pattern() -> None:
    sizes = [(3, 4), (1, 4), (3, 1), (1, 1), (6, 2), (1, 9), (0, 4), (0, 1)]
    check(lambda x: x.squeeze() + 1, [(torch.randn(s),) for s in sizes], programs=4)


def test_topk_over_many_k() -> None:
    def fn(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        values, indices = torch.topk(x, k)
        return values, indices

    calls = [(torch.randn(3, n), k) for n, k in [(9, 4), (9, 1), (9, 9), (9, 0), (4, 2), (1, 1), (30, 17), (2, 2)]]
    check(fn, calls, programs=1)


@pytest.mark.parametrize(
    ("fn", "numbers"),
    [
        (lambda x, n: x[:n] * 2, (3, 5, 1, 0, 9, 2)),
        (lambda x, n: x + n, (3, -2, 1, 0, 9)),
        (lambda x, n: x.new_zeros(n) + x.sum(), (3, 1, 0, 9)),
        (lambda x, n: torch.arange(n) * x.sum(), (3, 1, 0, 9)),
        (lambda x, n: x.expand(n, 6).sum(0), (3, 1, 0, 9)),
        (lambda x, n: F.pad(x, (n, 0)), (3, 1, 9, 2)),
        (lambda x, n: x.narrow(0, 0, n), (3, 1, 0, 6)),
        (lambda x, n: (x * n, n + 1), (3, 1, 0, -6)),
    ],
    ids=["slice", "add", "zeros", "arange", "expand", "pad", "narrow", "returned"],
)
def test_an_int_argument_is_free(fn: Callable[..., Any], numbers: tuple[int, ...]) -> None:
    check(fn, [(torch.arange(6.0), n) for n in numbers], programs=1)


def test_an_int_that_steers_python_is_a_predicate() -> None:
    def fn(x: Tensor, depth: int) -> Tensor:
        for _ in range(depth):
            x = torch.tanh(x)
        return x

    check(fn, [(torch.randn(n), d) for d in (2, 1, 3, 2) for n in (4, 1, 0)], programs=3)


def test_an_int_that_names_a_dim_is_a_predicate() -> None:
    calls = [(torch.randn(a, b), d) for d in (0, 1, -1) for a, b in [(3, 4), (1, 4), (2, 0), (5, 5)]]
    check(lambda x, dim: x.sum(dim), calls, programs=3)


# -- arguments of every kind -------------------------------------------------------------------------------------


def test_float_arguments() -> None:
    calls = [(torch.randn(n), s) for n, s in [(4, 0.5), (1, 2.0), (0, -1.0), (7, 0.0), (3, 1.0), (3, 3.25)]]
    check(lambda x, scale: x * scale + 1, calls, programs=2, at_most=True)


def test_bool_arguments() -> None:
    def fn(x: Tensor, negate: bool) -> Tensor:
        return -x if negate else x + 1

    check(fn, [(torch.randn(n), b) for n in (4, 1, 0, 7) for b in (True, False)], programs=2)


def test_none_arguments() -> None:
    def fn(x: Tensor, bias: Tensor | None) -> Tensor:
        return x * 2 if bias is None else x * 2 + bias

    check(fn, [(torch.randn(n), b) for n in (4, 1, 0, 7) for b in (None, torch.randn(n))], programs=2)


def test_string_arguments() -> None:
    def fn(x: Tensor, how: str) -> Tensor:
        return x.sum() if how == "sum" else x.cumsum(0)

    check(fn, [(torch.randn(n), h) for n in (4, 1, 0, 7) for h in ("sum", "cumsum")], programs=2)


def test_nested_containers() -> None:
    def fn(tree: dict[str, Any]) -> dict[str, Any]:
        (a, b), c = tree["pair"], tree["one"]["c"]
        return {"sum": a.sum() + b.sum(), "list": [c * 2, (a + 1, b - 1)], "none": None, "name": "out"}

    calls = [
        ({"pair": [torch.randn(n), torch.randn(m, 2)], "one": {"c": torch.randn(2, n)}},)
        for n, m in [(3, 4), (1, 4), (3, 1), (0, 0), (7, 9)]
    ]
    check(fn, calls, programs=1)


def test_a_list_has_a_program_for_each_length() -> None:
    calls = [([torch.randn(n, 2) for n in sizes],) for sizes in [(3, 4), (1, 0), (3, 4, 1), (9, 2, 2), (5,), (1,)]]
    check(lambda xs: torch.cat(xs).sum(0), calls, programs=3)


Pair = collections.namedtuple("Pair", ["left", "right"])


@dataclasses.dataclass
class Batch:
    tokens: Tensor
    mask: Tensor | None = None
    scale: float = 2.0


def test_named_tuples() -> None:
    calls = [(Pair(torch.randn(n), torch.randn(m)),) for n, m in [(3, 4), (1, 4), (0, 1), (7, 7)]]
    check(lambda p: Pair(p.left * 2, p.right.sum() + p.left.sum()), calls, programs=1)


def test_dataclasses() -> None:
    def fn(batch: Batch) -> Tensor:
        values = batch.tokens * batch.scale
        return values if batch.mask is None else values.masked_fill(batch.mask, 0.0)

    f = anyshape.compile(fn, backend="aot_eager")
    with expect_programs(2):
        for shape in [(3, 4), (1, 4), (3, 1), (0, 2)]:
            x = torch.randn(shape)
            for batch in (Batch(x), Batch(x, x > 0)):
                assert torch.equal(f(batch), fn(batch))


def test_keywords_and_defaults() -> None:
    def fn(x: Tensor, y: Tensor | None = None, *rest: Tensor, scale: float = 2.0, **named: Tensor) -> Tensor:
        total = x.sum() * scale + (0 if y is None else y.sum())
        return total + sum(r.sum() for r in rest) + sum(v.sum() for v in named.values())

    f = anyshape.compile(fn, backend="aot_eager")
    with expect_programs(4):
        for n in (4, 1, 0, 7):
            x, y, z = torch.randn(n, 2), torch.randn(3, n), torch.randn(n)
            torch.testing.assert_close(f(x), fn(x))
            torch.testing.assert_close(f(x, y), fn(x, y))
            torch.testing.assert_close(f(x, y, z), fn(x, y, z))
            torch.testing.assert_close(f(x, y=y, extra=z, scale=2.0), fn(x, y=y, extra=z, scale=2.0))
            torch.testing.assert_close(f(y=y, x=x), fn(y=y, x=x))


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.bool, torch.int64, torch.uint8]
)
def test_dtypes(dtype: torch.dtype) -> None:
    def fn(x: Tensor) -> Tensor:
        return torch.where(x != 0, x, torch.ones_like(x)).reshape(-1)

    check(fn, [(torch.randint(0, 2, (n, 3)).to(dtype),) for n in (4, 1, 0, 7)], programs=1)


def test_scalars_and_tensors_of_other_ranks_are_other_programs() -> None:
    shapes = [(), (3,), (1,), (0,), (3, 4), (1, 1), (2, 3, 4)]
    check(lambda x: (x * 2).sum(), [(torch.randn(s),) for s in shapes], programs=4)


# -- what a function reaches -------------------------------------------------------------------------------------

TABLE = torch.arange(12.0).reshape(4, 3)
OFFSET = 3


def test_closures() -> None:
    weight = torch.randn(3, 5)
    scale = 4

    def fn(x: Tensor) -> Tensor:
        return x @ weight * scale

    check(fn, [(torch.randn(n, 3),) for n in (4, 1, 0, 7)], programs=1)


def test_a_closure_that_is_rebound() -> None:
    weight = torch.randn(3, 5)

    def fn(x: Tensor) -> Tensor:
        return x @ weight

    f = anyshape.compile(fn, backend="aot_eager")
    with expect_programs(1):
        for columns in (5, 2, 1, 0, 8):
            weight = torch.randn(3, columns)
            assert difference(fn, f, (torch.randn(4, 3),)) is None


def test_globals(monkeypatch: pytest.MonkeyPatch) -> None:
    def fn(x: Tensor) -> Tensor:
        return x @ TABLE.T + OFFSET

    f = anyshape.compile(fn, backend="aot_eager")
    with expect_programs(1):
        for rows in (4, 1, 0, 7):
            monkeypatch.setitem(globals(), "TABLE", torch.randn(rows, 3))
            assert difference(fn, f, (torch.randn(2, 3),)) is None
    with expect_programs(1, at_most=True):
        monkeypatch.setitem(globals(), "OFFSET", 8)
        assert difference(fn, f, (torch.randn(2, 3),)) is None


def test_attributes() -> None:
    class Holder:
        table = torch.randn(3, 4)

    holder = Holder()
    f = anyshape.compile(lambda x, h: x @ h.table, backend="aot_eager")
    with expect_programs(1):
        for columns in (4, 1, 0, 9):
            holder.table = torch.randn(3, columns)
            x = torch.randn(2, 3)
            torch.testing.assert_close(f(x, holder), x @ holder.table)


def test_generators_recursion_and_early_returns() -> None:
    def halves(x: Tensor, depth: int) -> Iterable[Tensor]:
        for i in range(depth):
            yield x / (i + 1)

    def fold(x: Tensor, depth: int) -> Tensor:
        if depth == 0:
            return x
        return fold(torch.sin(x), depth - 1)

    def fn(x: Tensor) -> Tensor:
        if x.ndim == 1:
            return fold(x, 3)
        return sum(halves(x, 3), start=torch.zeros(()))

    check(fn, [(torch.randn(s),) for s in [(4,), (1,), (0,), (4, 3), (1, 3), (0, 1)]], programs=2)


# -- graph breaks ------------------------------------------------------------------------------------------------


def test_each_part_around_a_break_has_its_own_programs() -> None:
    def fn(x: Tensor) -> Tensor:
        y = x * 2
        torch._dynamo.graph_break()
        return y.sum(0) + 1

    check(fn, [(torch.randn(n, 3),) for n in (4, 1, 0, 7)], programs=2)


def test_a_branch_after_a_break_splits_only_its_part() -> None:
    def fn(x: Tensor) -> Tensor:
        y = x * 2
        torch._dynamo.graph_break()
        if y.shape[0] > 4:
            return y + 1
        return y - 1

    check(fn, [(torch.randn(n, 3),) for n in (4, 1, 0, 7, 9)], programs=3)


def test_values_printed_in_between(capsys: pytest.CaptureFixture[str]) -> None:
    def fn(x: Tensor) -> Tensor:
        y = x.sum()
        print("sum")
        return y * 2

    check(fn, [(torch.randn(n, 3),) for n in (4, 1, 0, 7)], programs=2, at_most=True)
    assert capsys.readouterr().out == "sum\n" * 8


def test_a_break_in_a_called_function() -> None:
    def inner(x: Tensor) -> Tensor:
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2

    def fn(x: Tensor) -> Tensor:
        return inner(x * 3).sum(0)

    f = check(fn, [(torch.randn(n, 3),) for n in (4, 1, 0, 7)], programs=4, at_most=True)
    assert len(f.programs) >= 2


def test_fullgraph_raises_on_a_break() -> None:
    def fn(x: Tensor) -> Tensor:
        y = x * 2
        torch._dynamo.graph_break()
        return y + 1

    f = anyshape.compile(fn, backend="aot_eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        f(torch.randn(4))
    assert f.programs == ()


def test_fullgraph_holds_for_a_whole_graph() -> None:
    check(lambda x: (x * 2).sum(0), [(torch.randn(n, 3),) for n in (4, 1, 0, 7)], programs=1, fullgraph=True)


# -- sizes that data decides -------------------------------------------------------------------------------------

BITS = [(torch.arange(n) % 3 == 0) & (torch.arange(n) < stop) for n, stop in [(9, 9), (4, 4), (1, 1), (5, 0), (0, 0)]]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.nonzero(),
        lambda x: x.nonzero().squeeze(1) * 2,
        lambda x: torch.arange(x.shape[0])[x] + 1,
        lambda x: torch.masked_select(x.float() + 1, x).sum(),
        lambda x: torch.zeros(x.shape[0]).index_put((x,), torch.tensor(4.0)),
        lambda x: torch.unique(x.long(), return_counts=True),
        lambda x: torch.repeat_interleave(torch.arange(x.shape[0]), x.long() * 2),
        lambda x: torch.repeat_interleave(x.float().new_ones(3), 2),
        lambda x: torch.zeros(x.sum().item()) + 1,
        lambda x: x.float() * x.sum().item(),
        lambda x: torch.where(x)[0],
        lambda x: torch.arange(x.sum().item()),
    ],
    ids=[
        "nonzero", "nonzero_squeeze", "mask", "masked_select", "index_put", "unique", "repeat_interleave",
        "repeat_by_int", "item_size", "item_value", "where", "item_arange",
    ],
)  # fmt: skip
def test_data_dependent(fn: Callable[..., Any]) -> None:
    check(fn, [(bits,) for bits in BITS], programs=1, fullgraph=True)


def test_a_branch_on_data_is_a_break() -> None:
    def fn(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x + 1
        return x - 1

    check(fn, [(torch.full((n,), v),) for n in (4, 1, 0, 7) for v in (1.0, -1.0)], programs=3)


def test_rows_chosen_by_a_mask_go_through_a_layer() -> None:
    layer = nn.Linear(4, 3)

    def fn(x: Tensor) -> Tensor:
        return torch.relu(layer(x[x[:, 0] > 0])).sum(0)

    check(fn, [(torch.randn(n, 4),) for n in (9, 4, 1, 0, 30)], programs=1)


def test_a_broadcast_that_could_not_be_told_from_none() -> None:
    """A first call of ones may be a broadcast or not: the program for both takes the place of the first."""
    f = anyshape.compile(lambda x, y: x + y, backend="aot_eager")
    for n in (1, 5, 7, 1, 3):
        x, y = torch.randn(n, n), torch.randn(n, 1)
        torch.testing.assert_close(f(x, y), x + y)
    (program,) = f.programs
    assert program.calls == 5
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    torch.testing.assert_close(f(x, y), x + y)
    assert len(f.programs) == 2


def test_what_differs_in_more_than_sizes_keeps_its_program() -> None:
    def fn(x: Tensor, y: Tensor, negate: bool) -> Tensor:
        return -(x + y) if negate else x + y

    f = anyshape.compile(fn, backend="aot_eager")
    with expect_programs(2):
        for negate in (True, False, True, False):
            for n in (1, 5):
                x = torch.randn(n, n)
                torch.testing.assert_close(f(x, x.clone(), negate), fn(x, x, negate))
    assert len(f.programs) == 2


# -- loops in steps ------------------------------------------------------------------------------------------------


def test_a_loop_in_steps_is_a_program_for_each_number_of_rounds() -> None:
    def fn(x: Tensor) -> Tensor:
        ends = [(start, min(x.shape[0], start + 4)) for start in range(0, x.shape[0], 4)]
        return torch.cat([x[start:end].softmax(0) for start, end in ends])

    check(fn, [(torch.randn(n, 2),) for n in (6, 7, 5, 8)], programs=1)
    check(fn, [(torch.randn(n, 2),) for n in (6, 3, 1, 2, 9, 4, 12)], programs=3)


def test_a_loop_in_steps_downwards() -> None:
    def fn(x: Tensor) -> Tensor:
        y = x.sum()
        for i in range(10, x.shape[0], -3):
            y = y * 2 + i
        return y

    check(fn, [(torch.randn(n, 2),) for n in (4, 5, 6)], programs=1)
    check(fn, [(torch.randn(n, 2),) for n in (12, 10, 9, 7, 1, 0)], programs=4)


# -- vmap and scans ----------------------------------------------------------------------------------------------


def test_vmap_is_verified_like_any_other_call() -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        return torch.vmap(lambda row: (row * w).softmax(-1) @ w, in_dims=0)(x)

    check(fn, [(torch.randn(b, n, 4), torch.randn(4)) for b, n in ((2, 5), (1, 5), (3, 1), (1, 1))], programs=1)


def test_what_vmap_reads_of_nothing_is_eagers_error() -> None:
    def fn(x: Tensor, at: Tensor) -> Tensor:
        return torch.vmap(lambda row: row[at])(x)

    f = check(fn, [(torch.randn(b, n, 2), torch.zeros(1).long()) for b, n in ((2, 5), (1, 4))], programs=1)
    with pytest.raises(IndexError):
        f(torch.randn(2, 0, 2), torch.zeros(1).long())


def test_attributes_written_before_and_after_a_scan() -> None:
    scan = pytest.importorskip("torch._higher_order_ops.associative_scan").associative_scan

    class Layer:
        def fill(self, x: Tensor) -> None:
            self.dtype, self.rows = x.dtype, x.shape[0]
            self.held = torch.zeros(self.rows, dtype=self.dtype)

    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        layers = [Layer(), Layer()]
        for layer in layers:
            layer.seen = False
        layers[0].fill(x)
        y = scan(lambda a, b: a + b, x, dim=0, combine_mode="generic")
        layers[1].fill(y)
        return layers[1].held + y.sum(1), layers[0].held

    f = anyshape.compile(fn, backend="aot_eager", fullgraph=True)
    for n in (4, 7, 2, 1):
        x = torch.randn(n, 3)
        torch.testing.assert_close(f(x), fn(x))
    assert len(f.programs) == 1 and f.fallbacks == {}


def test_a_scan_of_any_length_is_one_program() -> None:
    scan = pytest.importorskip("torch._higher_order_ops.associative_scan").associative_scan

    def fn(a: Tensor, b: Tensor) -> Tensor:
        combine = lambda left, right: (left[0] * right[0], right[0] * left[1] + right[1])
        return scan(combine, (a, b), dim=1, combine_mode="generic")[1] * 1

    f = anyshape.compile(fn, backend="aot_eager", fullgraph=True)
    for batch, length in ((2, 16), (3, 9), (1, 16), (5, 7), (2, 2), (2, 1)):
        a, b = torch.rand(batch, length, 3), torch.randn(batch, length, 3)
        torch.testing.assert_close(f(a, b), fn(a, b))
    assert len(f.programs) == 1 and f.fallbacks == {}
    nothing = torch.rand(2, 0, 3)
    try:
        want = fn(nothing, nothing)  # newer torch takes it
    except ValueError:
        with pytest.raises(ValueError, match="scan dimension"):
            f(nothing, nothing)
    else:
        torch.testing.assert_close(f(nothing, nothing), want)
