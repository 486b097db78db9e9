"""What eager refuses, anyshape refuses with the same exception; the next valid call works."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import anyshape
from anyshape.engine.engine import UNSUITED
from anyshape.testing import difference, run_once

R = torch.randn


@dataclasses.dataclass(frozen=True)
class Case:
    """A function, a call that works and one that does not."""

    name: str
    fn: Callable[..., Any]
    good: Callable[[], tuple[Any, ...]]
    bad: Callable[[], tuple[Any, ...]]


def _checked(x: torch.Tensor) -> torch.Tensor:
    torch._check(x.shape[0] > 3)
    return x * 2


def _checked_value(x: torch.Tensor) -> torch.Tensor:
    torch._check_value(x.shape[0] % 2 == 0)
    return x * 2


def _asserted(x: torch.Tensor) -> torch.Tensor:
    assert x.shape[0] < 5, "too long"
    return x * 2


def _raised(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] == 2:
        raise KeyError("two")
    return x + 1


def _in_place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x += y
    return x


def _unpacked(x: torch.Tensor) -> torch.Tensor:
    a, b, c = x.unbind(0)
    return a + b + c


def _unpacked_shape(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    return x.reshape(columns, rows)


def _assigned(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[1:] = y
    return x


CASES = [
    Case("inner_sizes", lambda x, y: x @ y, lambda: (R(3, 4), R(4, 2)), lambda: (R(3, 4), R(5, 2))),
    Case("inner_sizes_batched", torch.bmm, lambda: (R(2, 3, 4), R(2, 4, 1)), lambda: (R(2, 3, 4), R(3, 4, 1))),
    Case("inner_sizes_vector", torch.mv, lambda: (R(3, 4), R(4)), lambda: (R(3, 4), R(3))),
    Case("linear", F.linear, lambda: (R(3, 4), R(2, 4)), lambda: (R(3, 5), R(2, 4))),
    Case("addmm_bias", torch.addmm, lambda: (R(2), R(3, 4), R(4, 2)), lambda: (R(3), R(3, 4), R(4, 2))),
    Case("max_of_nothing", lambda x: x.max(), lambda: (R(3),), lambda: (R(0),)),
    Case("min_of_nothing", lambda x: x.min(), lambda: (R(3, 2),), lambda: (R(0, 2),)),
    Case("amax_of_nothing", lambda x: x.amax(0), lambda: (R(3, 2),), lambda: (R(0, 2),)),
    Case("argmax_of_nothing", lambda x: x.argmax(), lambda: (R(3),), lambda: (R(0),)),
    Case("max_of_no_rows", lambda x: x.max(0).values, lambda: (R(3, 2),), lambda: (R(0, 2),)),
    Case("reshape", lambda x: x.reshape(-1, 4), lambda: (R(2, 6),), lambda: (R(2, 5),)),
    Case("reshape_to_nothing", lambda x, n: x.reshape(n, n), lambda: (R(9), 3), lambda: (R(9), 2)),
    Case("view_size", lambda x: x.view(x.shape[0] // 2, 2), lambda: (R(6),), lambda: (R(5),)),
    Case("view_layout", lambda x: x.view(-1), lambda: (R(3, 4),), lambda: (R(4, 3).t(),)),
    Case("unflatten", lambda x: x.unflatten(0, (2, 3)), lambda: (R(6, 2),), lambda: (R(7, 2),)),
    Case("broadcast", lambda x, y: x + y, lambda: (R(3, 4), R(3, 4)), lambda: (R(3, 4), R(2, 4))),
    Case("broadcast_where", torch.where, lambda: (R(3) > 0, R(3), R(3)), lambda: (R(3) > 0, R(3), R(2))),
    Case("broadcast_in_place", _in_place, lambda: (R(3, 4), R(4)), lambda: (R(1, 4), R(3, 4))),
    Case("expand", lambda x, n: x.expand(n, 4), lambda: (R(3, 4), 3), lambda: (R(3, 4), 5)),
    Case("expand_rank", lambda x: x.expand(2, -1), lambda: (R(3),), lambda: (R(3, 2, 2),)),
    Case("index_select", lambda x, i: x.index_select(0, i), lambda: (R(3), torch.tensor([2])), lambda: (R(2), torch.tensor([2]))),
    Case("index_int", lambda x, n: x[n], lambda: (R(3, 2), 2), lambda: (R(3, 2), 3)),
    Case("index_first_of_nothing", lambda x: x[0] * 2, lambda: (R(3, 2),), lambda: (R(0, 2),)),
    Case("index_last_of_nothing", lambda x: x[-1] * 2, lambda: (R(3, 2),), lambda: (R(0, 2),)),
    Case("index_tensor", lambda x, i: x[i] + 1, lambda: (R(4), torch.tensor([3, 0])), lambda: (R(4), torch.tensor([4]))),
    Case("gather", lambda x, i: x.gather(0, i), lambda: (R(4), torch.tensor([3])), lambda: (R(4), torch.tensor([7]))),
    Case("embedding", lambda w, i: F.embedding(i, w), lambda: (R(4, 2), torch.tensor([3])), lambda: (R(4, 2), torch.tensor([4]))),
    Case("index_mask", lambda x, m: x[m], lambda: (R(4), R(4) > 0), lambda: (R(4), R(3) > 0)),
    Case("assigned_slice", _assigned, lambda: (R(4, 2), R(3, 2)), lambda: (R(4, 2), R(2, 2))),
    Case("narrow", lambda x, n: x.narrow(0, 1, n), lambda: (R(4), 3), lambda: (R(4), 4)),
    Case("select_dim", lambda x: x.select(1, 1), lambda: (R(4, 2),), lambda: (R(4, 1),)),
    Case("check", _checked, lambda: (R(4),), lambda: (R(3),)),
    Case("check_value", _checked_value, lambda: (R(4),), lambda: (R(3),)),
    Case("assert", _asserted, lambda: (R(4),), lambda: (R(5),)),
    Case("raise", _raised, lambda: (R(4),), lambda: (R(2),)),
    Case("unbind", _unpacked, lambda: (R(3, 2),), lambda: (R(4, 2),)),
    Case("shape_unpacked", _unpacked_shape, lambda: (R(3, 2),), lambda: (R(4, 2, 1),)),
    Case("cat", lambda x, y: torch.cat([x, y]), lambda: (R(3, 2), R(1, 2)), lambda: (R(3, 2), R(3, 3))),
    Case("cat_rank", lambda x, y: torch.cat([x, y]), lambda: (R(3, 2), R(1, 2)), lambda: (R(3, 2), R(3))),
    Case("stack", lambda x, y: torch.stack([x, y]), lambda: (R(3), R(3)), lambda: (R(3), R(2))),
    Case("split", lambda x: x.split([2, 3]), lambda: (R(5),), lambda: (R(6),)),
    Case("split_negative", lambda x, n: x.split(n)[0], lambda: (R(5), 2), lambda: (R(5), -1)),
    Case("chunk_of_none", lambda x, n: x.chunk(n)[0], lambda: (R(5), 2), lambda: (R(5), 0)),
    Case("negative_size", lambda x, n: x.new_zeros(n) + x.sum(), lambda: (R(5), 2), lambda: (R(5), -1)),
    Case("negative_size_from_shape", lambda x: torch.ones(x.shape[0] - 2), lambda: (R(5),), lambda: (R(1),)),
    Case("negative_repeat", lambda x, n: x.repeat(n), lambda: (R(5), 2), lambda: (R(5), -1)),
    Case("negative_arange", lambda x: torch.arange(0, x.shape[0] - 3), lambda: (R(5),), lambda: (R(1),)),
    Case("dtype_matmul", lambda x, y: x @ y, lambda: (R(3, 4), R(4, 2)), lambda: (R(3, 4), R(4, 2).double())),
    Case("dtype_index", lambda x, i: x[i], lambda: (R(3), torch.tensor([1])), lambda: (R(3), R(1))),
    Case("dtype_embedding", lambda w, i: F.embedding(i, w), lambda: (R(4, 2), torch.tensor([3])), lambda: (R(4, 2), R(1))),
    Case("dtype_in_place", _in_place, lambda: (R(3), R(3)), lambda: (torch.ones(3, dtype=torch.long), R(3))),
    Case("conv_smaller_than_kernel", F.conv1d, lambda: (R(1, 2, 9), R(3, 2, 4)), lambda: (R(1, 2, 3), R(3, 2, 4))),
    Case("conv_channels", F.conv2d, lambda: (R(1, 2, 9, 9), R(3, 2, 3, 3)), lambda: (R(1, 3, 9, 9), R(3, 2, 3, 3))),
    Case("conv_rank", F.conv2d, lambda: (R(1, 2, 9, 9), R(3, 2, 3, 3)), lambda: (R(2, 9), R(3, 2, 3, 3))),
    Case("pool_smaller_than_kernel", lambda x: F.max_pool1d(x, 3), lambda: (R(1, 2, 9),), lambda: (R(1, 2, 2),)),
    Case("reflect_padding", lambda x: F.pad(x, (2, 2), mode="reflect"), lambda: (R(2, 5),), lambda: (R(2, 2),)),
    Case("layer_norm", lambda x, w: F.layer_norm(x, (4,), w), lambda: (R(3, 4), R(4)), lambda: (R(3, 5), R(4))),
    Case("group_norm", lambda x: F.group_norm(x, 2), lambda: (R(3, 4, 5),), lambda: (R(3, 5, 5),)),
    Case("batch_norm", lambda x: F.batch_norm(x, None, None, training=True), lambda: (R(3, 4),), lambda: (R(1, 4),)),
    Case("topk", lambda x, k: torch.topk(x, k).values, lambda: (R(5), 3), lambda: (R(5), 6)),
    Case("topk_of_a_size", lambda x: torch.topk(x, 3).values, lambda: (R(5),), lambda: (R(2),)),
    Case("kthvalue", lambda x: torch.kthvalue(x, 3).values, lambda: (R(5),), lambda: (R(2),)),
    Case("squeeze_dim", lambda x: x.squeeze(1), lambda: (R(3, 1),), lambda: (R(3),)),
    Case("sum_dim", lambda x, d: x.sum(d), lambda: (R(3, 1), 1), lambda: (R(3, 1), 2)),
    Case("permute", lambda x: x.permute(1, 0), lambda: (R(3, 1),), lambda: (R(3, 1, 2),)),
    Case("transpose_dim", lambda x: x.transpose(0, 1), lambda: (R(3, 1),), lambda: (R(3),)),
    Case("cross_entropy", F.cross_entropy, lambda: (R(3, 4), torch.tensor([0, 1, 3])), lambda: (R(3, 4), torch.tensor([0, 1]))),
    Case("item_of_many", lambda x: x * x.sum(0).item(), lambda: (R(3),), lambda: (R(3, 2),)),
    Case("scatter", lambda x, i: x.scatter(0, i, 1.0), lambda: (R(4), torch.tensor([3])), lambda: (R(4), torch.tensor([4]))),
    Case("not_square", torch.linalg.inv, lambda: (torch.eye(3),), lambda: (R(3, 2),)),
    Case("cholesky", torch.linalg.cholesky, lambda: (torch.eye(3),), lambda: (-torch.eye(3),)),
    Case("einsum", lambda x, y: torch.einsum("ij,jk->ik", x, y), lambda: (R(2, 3), R(3, 4)), lambda: (R(2, 3), R(2, 4))),
    Case("unfold", lambda x: x.unfold(0, 3, 1), lambda: (R(5),), lambda: (R(2),)),
    Case("missing_argument", lambda x, y: x + y, lambda: (R(3), R(3)), lambda: (R(3),)),
    Case("not_a_tensor", lambda x: x.sum(), lambda: (R(3),), lambda: ("text",)),
]  # fmt: skip

# What the engine does not do yet, by case.
KNOWN: dict[str, str] = {}


def _case(case: Case) -> Any:
    marks = [pytest.mark.xfail(strict=True, reason=KNOWN[case.name])] if case.name in KNOWN else []
    return pytest.param(case, id=case.name, marks=marks)


def _refusal(fn: Callable[..., Any], arguments: tuple[Any, ...]) -> type[BaseException] | None:
    try:
        fn(*arguments)
    except Exception as error:
        return type(error)
    return None


def _refuses(case: Case, order: str, backend: str) -> None:
    wanted = _refusal(case.fn, case.bad())
    assert wanted is not None, "eager takes this call"
    f = anyshape.compile(case.fn, backend=backend)
    for step in order:
        if step == "g":
            assert difference(case.fn, f, case.good()) is None
        else:
            assert _refusal(f, case.bad()) is wanted


def test_there_are_enough() -> None:
    assert len(CASES) >= 40
    assert len({c.name for c in CASES}) == len(CASES)


@pytest.mark.parametrize("case", [_case(c) for c in CASES])
def test_refused_after_a_valid_call(case: Case) -> None:
    _refuses(case, "gbbg", "aot_eager")


@pytest.mark.parametrize("case", [_case(c) for c in CASES])
def test_refused_as_the_first_call(case: Case) -> None:
    _refuses(case, "bgb", "aot_eager")


IN_INDUCTOR = ("inner_sizes", "max_of_nothing", "reshape", "index_select", "cat", "check", "topk", "raise")


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in CASES if c.name in IN_INDUCTOR])
def test_refused_in_inductor(case: Case) -> None:
    _refuses(case, "gbg", "inductor")


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_first_call_that_raises_does_not_end_compilation(backend: str) -> None:
    f = anyshape.compile(_raised, backend=backend)
    for _ in range(2):
        with pytest.raises(KeyError, match="two"):
            f(R(2, 3))
    assert list(f.fallbacks.values()) == [2] and "KeyError" in next(iter(f.fallbacks))
    torch.testing.assert_close(f(x := R(4, 3)), x + 1)
    f(R(7, 2))
    assert [p.calls for p in f.programs] == [2]


def _around(x: torch.Tensor) -> torch.Tensor:
    with _Closing():  # Dynamo cannot capture what is around a graph break
        torch._dynamo.graph_break()
        x = x + 1
    return _inner(x)


def _inner(x: torch.Tensor) -> torch.Tensor:
    return x * 2


class _Closing:
    """A context that Dynamo does not know."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


def test_a_frame_that_cannot_be_captured_is_counted_and_what_it_calls_compiled() -> None:
    f = anyshape.compile(_around, backend="aot_eager")
    for n in (3, 4, 3, 0, 7):
        torch.testing.assert_close(f(x := R(n)), (x + 1) * 2)
    assert sum(f.fallbacks.values()) == 5
    assert [p.name for p in f.programs] == ["_inner"]


def test_the_text_is_eagers_own() -> None:
    fn = lambda x, y: x @ y
    f = anyshape.compile(fn, backend="aot_eager")
    f(R(3, 4), R(4, 2))
    texts = []
    for call in (fn, f):
        with pytest.raises(RuntimeError) as caught:
            call(torch.ones(3, 4), torch.ones(5, 2))
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


def test_a_refused_call_leaves_its_inputs_as_eager_does() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x @ y

    f = anyshape.compile(fn, backend="aot_eager")
    for shape in [(4, 2), (5, 2), (4, 3), (1, 3)]:
        assert difference(fn, f, (R(3, 4), R(shape))) is None


def test_what_the_function_raises_is_raised_under_fullgraph() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 0:
            raise ValueError("nothing to do")
        return x + 1

    f = anyshape.compile(fn, backend="aot_eager", fullgraph=True)
    f(torch.randn(3))
    with pytest.raises(ValueError, match="nothing to do"):
        f(torch.randn(0))


def _largest(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].max(0)[0]


def _first(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0][0]


def _smallest(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].kthvalue(1, dim=0)[0]


def _checked(x: torch.Tensor) -> torch.Tensor:
    found = x[x > 0]
    torch._check(found.shape[0] >= 1)
    return found[0]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("fn", [_largest, _first, _smallest, _checked])
def test_nothing_to_choose_from(fn: Callable[..., torch.Tensor], backend: str) -> None:
    """How much there is comes out of the data, so it is the compiled code that finds out."""
    f = anyshape.compile(fn, backend=backend)
    for x in (torch.tensor([1.0, -1.0, 2.0]), torch.zeros(3)):
        assert difference(fn, f, (x,)) is None
    assert f.fallbacks == {UNSUITED: 1}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("fn", [_largest, _first, _smallest, _checked])
def test_nothing_to_choose_from_after_a_write(fn: Callable[..., torch.Tensor], backend: str) -> None:
    """The call cannot be made again, so it is the compiled code that has to raise what eager raises."""

    def after_a_write(x: torch.Tensor) -> torch.Tensor:
        x += 1
        return fn(x)

    f = anyshape.compile(after_a_write, backend=backend)
    assert difference(after_a_write, f, (torch.tensor([1.0, -1.0, 2.0]),)) is None
    want, got = (run_once(g, (-torch.ones(3),)).error for g in (after_a_write, f))
    assert type(want) is type(got) is not type(None)
    assert f.fallbacks == {}


UNHELD: dict[str, tuple[Callable[..., Any], torch.dtype, torch.dtype]] = {
    "integers by a fraction": (lambda x, y: x.mul_(1.5), torch.int64, torch.int64),
    "by operator": (operator.imul, torch.int64, torch.float32),
    "imaginary parts": (lambda x, y: x.add_(y), torch.float32, torch.complex64),
    "a number's imaginary part": (lambda x, y: x.sub_(1j), torch.float32, torch.float32),
    "flags by numbers": (lambda x, y: x.mul_(y), torch.bool, torch.int64),
    "products": (lambda x, y: x.addcmul_(y, y), torch.int64, torch.float64),
    "a list": (lambda x, y: torch._foreach_mul_([x], 1.5), torch.int64, torch.int64),
    "what is negated": (lambda x, y: y.conj().imag.add_(y), torch.float32, torch.complex64),
}


@pytest.mark.parametrize("name", UNHELD)
def test_results_that_what_is_written_to_cannot_hold(name: str) -> None:
    """They are rounded where only torch's fake kernels are asked."""
    write, own, other = UNHELD[name]

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        write(x, y.clone())
        return x

    f = anyshape.compile(fn, backend="aot_eager")
    for n in (3, 1, 0, 5):
        arguments = torch.ones(n).to(own), torch.ones(n).to(other)
        with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
            fn(*arguments)
        with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
            f(*arguments)


def test_results_that_what_is_written_to_holds_are_compiled() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor, k: float) -> torch.Tensor:
        x = x.clone()
        x.mul_(2).add_(y, alpha=2).sub_(k)
        x += y.sum()
        return x.addcmul_(x, x, value=0.5)

    f = anyshape.compile(fn, backend="aot_eager", fullgraph=True)
    for n in (3, 5, 7):
        arguments = (torch.ones(n), torch.arange(n), n / 2)
        assert difference(fn, f, arguments) is None
    assert len(f.programs) == 1
    assert not f.fallbacks


@pytest.mark.parametrize("first", [(3, 4), (3, 0)])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.sum() + x.numel() // x.shape[1],
        lambda x: x.sum() + x.numel() % x.shape[1],
        lambda x: x.sum() + (2 * x.numel()) // (x.shape[0] * x.shape[1]),
    ],
    ids=["quotient", "rest", "two factors"],
)
def test_a_division_that_cancels_is_one_by_zero_all_the_same(fn: Callable[..., Any], first: tuple[int, int]) -> None:
    """torch makes `n` of `(n * m) // m`, whatever `m` is."""
    compiled = anyshape.compile(fn, backend="aot_eager")
    for sizes in (first, (5, 2), (3, 0), (0, 0), (2, 1), (0, 3)):
        assert difference(fn, compiled, (torch.ones(sizes),)) is None, sizes
    assert len(compiled.programs) == 1
