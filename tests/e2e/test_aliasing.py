"""Memory: what eager writes into, and what its results share, at every size and layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.testing import difference, expect_programs


def check(fn: Callable[..., Any], calls: list[tuple[Any, ...]], **options: Any) -> Any:
    f = anyshape.compile(fn, backend=options.pop("backend", "aot_eager"), **options)
    for number, arguments in enumerate(calls):
        text = difference(fn, f, arguments)
        assert text is None, f"call {number}: {text}"
    return f


def _flattened(x: Tensor) -> Tensor:
    x.reshape(-1).add_(1)
    return x.sum()


def layouts(n: int, m: int) -> list[Tensor]:
    """The same shape in memory in the ways that decide whether `reshape` is a view."""
    return [
        torch.randn(n, m),
        torch.randn(m, n).t(),
        torch.randn(n, 2 * m)[:, ::2],
        torch.randn(2 * n, m)[::2],
        torch.randn(n, m + 3)[:, :m],
    ]


SIZES = [(3, 4), (1, 4), (3, 1), (1, 1), (0, 4), (3, 0), (7, 2)]


@pytest.mark.parametrize("layout", range(5), ids=["contiguous", "transposed", "columns", "rows", "padded"])
def test_in_place_through_reshape(layout: int) -> None:
    check(_flattened, [(layouts(n, m)[layout],) for n, m in SIZES])


def test_in_place_through_reshape_layouts_in_turn() -> None:
    check(_flattened, [(x,) for n, m in SIZES for x in layouts(n, m)])


def test_contiguous_sizes_share_a_program() -> None:
    with expect_programs(1):
        check(_flattened, [(torch.randn(n, m),) for n, m in SIZES])


def test_in_place_through_reshape_of_an_outer_dim_of_one() -> None:
    # The stride of the outer dim addresses nothing: (1, 4) with stride (99, 1) is as contiguous as any.
    odd = [torch.randn(200).as_strided((1, m), (99, 1)) for m in (4, 1, 7)]
    check(_flattened, [(torch.randn(3, 4),), *[(x,) for x in odd], (torch.randn(5, 2),)])


def test_in_place_through_reshape_of_an_inner_dim_of_one() -> None:
    odd = [torch.randn(200).as_strided((n, 1), (3, 50)) for n in (4, 1, 7)]
    check(_flattened, [(torch.randn(3, 4),), *[(x,) for x in odd], (torch.randn(5, 2),)])


def test_in_place_through_flatten_view_and_ravel() -> None:
    for fn in (
        lambda x: (x.flatten().mul_(2), x.sum())[1],
        lambda x: (x.view(-1).mul_(2), x.sum())[1],
        lambda x: (x.ravel().mul_(2), x.sum())[1],
        lambda x: (x.contiguous().mul_(2), x.sum())[1],
    ):
        check(fn, [(x,) for n, m in SIZES for x in layouts(n, m)])


@pytest.mark.parametrize("order", [((5, 7), (1, 4), (16, 33)), ((1, 4), (5, 7))])
def test_in_place_through_contiguous(order: tuple[tuple[int, int], ...]) -> None:
    def fn(x: Tensor) -> Tensor:
        x.t().contiguous().add_(1)
        return x.sum()

    check(fn, [(torch.randn(s),) for s in order])


EXPANDED = [
    *[(torch.randn(1, m).expand(n, m),) for n, m in SIZES if n > 0],
    *[(torch.randn(m).expand(n, m),) for n, m in SIZES],
    *[(torch.randn(n, 1).expand(n, m),) for n, m in SIZES if m > 0],
]


@pytest.mark.parametrize(
    "fn",
    [lambda x: x.reshape(-1) + 1, lambda x: x.sum(0), lambda x: x * 2, lambda x: (x.t() + 1, x)],
    ids=["reshape", "sum", "double", "view"],
)
def test_expanded_inputs(fn: Callable[..., Any]) -> None:
    check(fn, EXPANDED)


def test_in_place_through_reshape_of_expanded_inputs() -> None:
    # Where the expanded dim is all there is, `reshape` is a view and eager refuses the write.
    check(_flattened, [(x,) for (x,) in EXPANDED if x.shape[0] != 1])


def test_in_place_through_reshape_of_an_expanded_row() -> None:
    check(_flattened, [(torch.randn(1, 1).expand(1, 4),)])


def test_writing_to_an_expanded_input_is_refused_as_in_eager() -> None:
    check(lambda x: x.add_(1), [(torch.randn(1, 4).expand(n, 4),) for n in (3, 1, 5)])


@pytest.mark.xfail(strict=True, reason="inputs that overlap and are written to have no program: each call runs eagerly")
def test_overlapping_inputs() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2)
        return y + 1

    calls = []
    for n, shift in [(5, 2), (3, 0), (4, 4), (1, 0), (1, 1), (0, 0), (9, 3)]:
        room = torch.randn(n + shift + 3)
        calls.append((room[:n], room[shift : shift + n]))
    check(fn, calls)


def test_an_input_that_overlaps_itself() -> None:
    check(lambda x: x * 2 + x.sum(), [(torch.randn(20).as_strided((n, 3), (1, 1)),) for n in (4, 1, 7, 0, 2)])


def test_overlapping_inputs_that_are_read() -> None:
    room = torch.randn(20)
    calls = [(torch.randn(5), torch.randn(5))]
    calls += [(room[:n], room[k : k + n]) for n, k in [(5, 2), (3, 0), (4, 4), (1, 0), (1, 1), (0, 0), (9, 3)]]
    with expect_programs(1):
        check(lambda x, y: x * 2 + y, calls)


@pytest.mark.xfail(strict=True, reason="inputs that overlap and are written to have no program: each call runs eagerly")
def test_overlapping_after_apart() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return x * y

    room = torch.randn(16)
    check(fn, [
        (torch.randn(5), torch.randn(5)), (room[:5], room[3:8]), (torch.randn(1), torch.randn(1)),
        (room[:1], room[:1]), (room[:4], room[8:12]), (torch.randn(0), torch.randn(0)),
    ])  # fmt: skip


def test_the_same_tensor_twice() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return x * y

    f = anyshape.compile(fn, backend="aot_eager")
    for n in (5, 1, 0, 7):
        for twice in (False, True, False):
            ours = torch.arange(float(n))
            eager = ours.clone()
            other = torch.ones(n)
            got, want = f(ours, ours if twice else other), fn(eager, eager if twice else other)
            assert torch.equal(got, want)
            assert torch.equal(ours, eager)


def test_three_places_for_one_tensor() -> None:
    def fn(xs: list[Tensor], y: Tensor) -> Tensor:
        xs[0].mul_(3)
        return xs[1] + y

    f = anyshape.compile(fn, backend="aot_eager")
    for n in (4, 1, 0, 6):
        for pattern in ("aaa", "aab", "aba", "baa", "abc"):
            ours = {c: torch.arange(float(n)) for c in "abc"}
            eager = {c: torch.arange(float(n)) for c in "abc"}
            a, b, c = pattern
            got, want = f([ours[a], ours[b]], ours[c]), fn([eager[a], eager[b]], eager[c])
            assert torch.equal(got, want)
            assert all(torch.equal(ours[k], eager[k]) for k in ours)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.t(),
        lambda x: x[1:],
        lambda x: x[:, ::2],
        lambda x: x.reshape(-1),
        lambda x: x.flatten(),
        lambda x: x.unsqueeze(0),
        lambda x: x.squeeze(),
        lambda x: x.squeeze(0),
        lambda x: x.expand(2, *x.shape),
        lambda x: x,
        lambda x: x.contiguous(),
        lambda x: x.diagonal(),
        lambda x: x.split(2)[0] if x.shape[0] > 2 else x,
        lambda x: (x.t(), x[:1], x + 1),
        lambda x: x.narrow(0, 0, x.shape[0] // 2),
        lambda x: x.to(torch.float32),
        lambda x: x.broadcast_to(x.shape),
        lambda x: x.detach(),
        lambda x: x.expand_as(x),
        lambda x: x.movedim(0, 1),
        lambda x: torch.atleast_2d(x),
        lambda x: x.view_as(x),
        lambda x: x.repeat(1, 1),
        lambda x: x.chunk(2),
        lambda x: x.unbind(1)[0] if x.shape[1] else x,
    ],
    ids=[
        "t", "slice", "step", "reshape", "flatten", "unsqueeze", "squeeze", "squeeze_0", "expand", "itself", "contiguous",
        "diagonal", "split", "several", "narrow", "to", "broadcast_to", "detach", "expand_as", "movedim", "atleast_2d",
        "view_as", "repeat", "chunk", "unbind",
    ],
)  # fmt: skip
def test_returned_views(fn: Callable[..., Any]) -> None:
    """Shared memory is compared, and writing into what is returned reaches the input as in eager."""
    f = anyshape.compile(fn, backend="aot_eager")
    for n, m in SIZES:
        for layout in range(3):
            x = layouts(n, m)[layout]
            assert difference(fn, f, (x,)) is None, (n, m, layout)
            results = []
            for call in (f, fn):
                torch.manual_seed(0)
                given = layouts(n, m)[layout]
                out = call(given)
                for part in out if isinstance(out, (tuple, list)) else [out]:
                    if 0 not in part.stride() or part.numel() == 0:
                        part.fill_(7.0)
                results.append(given)
            assert torch.equal(results[0], results[1]), (n, m, layout)


def _slice_filled(x: Tensor) -> Tensor:
    x[1:3] = 0.0
    return x.sum()


def _column_added(x: Tensor) -> Tensor:
    x[:, 0] += 1
    return x * 1


def _rows_copied(x: Tensor) -> Tensor:
    x[: x.shape[0] // 2].copy_(x[x.shape[0] - x.shape[0] // 2 :].clone())
    return x + 0


def _masked(x: Tensor) -> Tensor:
    x[x > 0] = -1.0
    return x.sum(0)


def _strided(x: Tensor) -> Tensor:
    x[::2, 1:].mul_(2)
    return x.sum(1)


def _viewed_twice(x: Tensor) -> Tensor:
    a, b = x.view(-1), x[1:]
    a.add_(1)
    return b * 2


@pytest.mark.parametrize("fn", [_slice_filled, _column_added, _rows_copied, _masked, _strided, _viewed_twice])
def test_in_place_on_a_part(fn: Callable[..., Any]) -> None:
    sizes = [(3, 4), (1, 4), (2, 1), (1, 1), (0, 4), (7, 2)]
    check(fn, [(torch.randn(n, m),) for n, m in sizes])
    check(fn, [(x,) for n, m in sizes for x in layouts(n, m)])


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.add_(1),
        lambda x: x.t_(),
        lambda x: x.unsqueeze_(0),
        lambda x: x.squeeze_(),
        lambda x: x.zero_(),
        lambda x: x.copy_(torch.ones(x.shape)),
        lambda x: torch.relu_(x),
        lambda x: x.clamp_(0, 1)[:1],
        lambda x: (x.add_(1), x.add_(1))[0],
    ],
    ids=["add_", "t_", "unsqueeze_", "squeeze_", "zero_", "copy_", "relu_", "clamp_", "twice"],
)
def test_in_place_methods(fn: Callable[..., Any]) -> None:
    check(fn, [(torch.randn(s),) for s in SIZES])


def test_out_of_the_right_size() -> None:
    def fn(x: Tensor, y: Tensor, out: Tensor) -> Tensor:
        torch.add(x, y, out=out)
        return out

    for make in (
        lambda n, m: torch.zeros(n, m),
        lambda n, m: torch.zeros(m, n).t(),
        lambda n, m: torch.zeros(n, 2 * m)[:, ::2],
    ):
        check(fn, [(torch.randn(n, m), torch.randn(n, m), make(n, m)) for n, m in SIZES])


def test_out_that_is_an_input() -> None:
    f = anyshape.compile(lambda x: torch.mul(x, 2, out=x), backend="aot_eager")
    for n in (4, 1, 0, 7):
        x = torch.arange(float(n))
        got = f(x)
        assert got is x
        assert torch.equal(x, torch.arange(float(n)) * 2)


def test_a_buffer_that_a_module_writes() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            self.total += x.sum(0)
            return x - self.total

    ours, eager = Counter(), Counter()
    f = anyshape.compile(ours, backend="aot_eager")
    with expect_programs(1):
        for n in (4, 1, 0, 7):
            x = torch.randn(n, 3)
            torch.testing.assert_close(f(x), eager(x))
            torch.testing.assert_close(ours.total, eager.total)


def test_gradients_through_writes() -> None:
    def fn(x: Tensor) -> Tensor:
        y = x * 2
        y[1:].mul_(3)
        y.reshape(-1).add_(1)
        return (y * y).sum()

    f = anyshape.compile(fn, backend="aot_eager")
    for n, m in SIZES:
        ours = torch.randn(n, m, requires_grad=True)
        eager = ours.detach().clone().requires_grad_()
        f(ours).backward()
        fn(eager).backward()
        torch.testing.assert_close(ours.grad, eager.grad)


@pytest.mark.parametrize("layout", range(3), ids=["contiguous", "transposed", "columns"])
def test_in_place_through_reshape_in_inductor(layout: int) -> None:
    check(_flattened, [(layouts(n, m)[layout],) for n, m in [(3, 4), (1, 4), (3, 1), (0, 4)]], backend="inductor")


def _windows(x: Tensor) -> Tensor:
    x.unfold(0, 2, 3).add_(1)
    return x


def _windows_turned(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    v = y.unfold(0, 2, 3).transpose(0, 1)
    v.zero_()
    return y, v


@pytest.mark.parametrize("fn", [_windows, _windows_turned])
def test_what_no_window_has_is_left_alone(fn: Callable[..., Any]) -> None:
    """Functionalization takes it for 0."""
    f = anyshape.compile(fn, backend="aot_eager")
    for n in (5, 7, 2):
        assert difference(fn, f, (torch.randn(n),)) is None
    assert sum(f.fallbacks.values()) == 3


def test_windows_that_are_read_are_no_matter() -> None:
    def fn(x: Tensor) -> Tensor:
        windows = x.unfold(0, 2, 1)
        x.add_(1)
        return windows.sum(1)

    f = anyshape.compile(fn, backend="aot_eager")
    with expect_programs(1):
        for n in (5, 7, 2):
            assert difference(fn, f, (torch.randn(n),)) is None
    assert not f.fallbacks


def _all_rows(rows: Tensor) -> None:
    rows[:] = 5


def _some_rows(rows: Tensor) -> None:
    rows[1:] = 5


def _a_column(rows: Tensor) -> None:
    rows[..., 0] = 5


def _rows_by_index(rows: Tensor) -> None:
    rows[[0, 1]] = 5.0


def _by_mask(rows: Tensor) -> None:
    rows[rows > 0] = 5.0


def _by_operator(rows: Tensor) -> None:
    rows += 1


def _by_function(rows: Tensor) -> None:
    torch.relu_(rows)


@pytest.mark.filterwarnings("ignore::anyshape.FallbackWarning")
@pytest.mark.parametrize(
    "write", [_all_rows, _some_rows, _a_column, _rows_by_index, _by_mask, _by_operator, _by_function]
)
def test_rows_that_are_one_row_are_written_as_eager_writes_them(write: Callable[[Tensor], None]) -> None:
    """Or not at all: functionalization adds up what is written to each of them."""

    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        rows = x.expand(3, -1)
        write(rows)
        return x * 2, rows * 2

    check(fn, [(torch.ones(4),), (torch.ones(1),), (torch.ones(0),), (torch.ones(7),)])


def test_one_of_several_rows_that_are_one_is_written_compiled() -> None:
    def fn(x: Tensor) -> Tensor:
        rows = x.expand(3, -1)
        rows[0] = 5
        rows[1, 1:] = 6
        return rows * 2

    with expect_programs(1):
        f = check(fn, [(torch.ones(4),), (torch.ones(5),), (torch.ones(7),)])
    assert not f.fallbacks


CONJUGATED: dict[str, Callable[[Tensor], Any]] = {
    "a number": lambda x: x.conj().add_(1),
    "itself": lambda x: x.conj().mul_(x),
    "by operator": lambda x: x.conj().__iadd__(1),
    "a part": lambda x: x.conj()[1:].mul_(2),
    "of a transform": lambda x: torch.fft.ifft(x.real).add_(1),
    "zero": lambda x: x.conj().zero_(),
    "what is negated": lambda x: x.conj().imag.add_(1),
    "by keyword": lambda x: x.conj().add_(other=x, alpha=2),
}


@pytest.mark.parametrize("name", CONJUGATED)
def test_a_write_to_a_conjugate_is_one_program(name: str) -> None:
    write = CONJUGATED[name]

    def fn(x: Tensor) -> tuple[Any, Tensor]:
        return write(x) * 2, x

    with expect_programs(1):
        check(fn, [(torch.randn(n, dtype=torch.complex64),) for n in (2, 5, 7)])


def test_gradients_through_a_write_to_a_conjugate() -> None:
    def fn(x: Tensor) -> Tensor:
        y = x * 1j
        y.conj().mul_(2)
        return y.abs().sum()

    f = anyshape.compile(fn, backend="aot_eager")
    with expect_programs(1):
        for n in (2, 5, 7):
            x = torch.randn(n, dtype=torch.complex64, requires_grad=True)
            assert difference(fn, f, (x,), backward=True) is None


def test_written_parts_of_unbind() -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        first, second, third = x.unbind(1)
        first.mul_(2)
        third.add_(second)
        return x, first, second

    with expect_programs(1):
        check(fn, [(torch.randn(n, 3, m),) for n, m in ((2, 4), (5, 3), (7, 2))])


def test_parts_of_unbind_that_autograd_does_not_let_be_written() -> None:
    def fn(x: Tensor) -> Tensor:
        parts = (x * 2).unbind()
        parts[0].add_(1)
        return parts[0]

    f = anyshape.compile(fn, backend="aot_eager")
    for n in (4, 7):
        x = torch.randn(3, n, requires_grad=True)
        with pytest.raises(RuntimeError, match="multiple views"):
            fn(x)
        with pytest.raises(RuntimeError, match="multiple views"):
            f(x)


def _itself(x: Tensor) -> Tensor:
    y = x.expand(x.shape)
    y[0] = 3
    return y


def _as_another(x: Tensor) -> Tensor:
    y = torch.broadcast_to(x, x.clone().shape)
    y[..., :1].fill_(3)
    return x


def _one_of_new_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    rows = x.expand(3, *x.shape)
    rows[1, 0] = 3
    rows[-1][..., -1:] = 1
    return x, rows


def _one_of_stretched_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    rows = x[None].expand(3, *x.shape)
    rows[2] = 3
    return x, rows


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("fn", [_itself, _as_another, _one_of_new_rows, _one_of_stretched_rows])
def test_what_is_written_over_large_numbers_of_an_expanded_tensor(fn: Callable[..., Any], backend: str) -> None:
    """Functionalization adds the difference: 3 over 1e20 was 0, over infinity NaN, and bools cannot be subtracted."""
    numbers = torch.tensor([[1e20, 2.0], [float("inf"), -1e30], [float("nan"), 0.5]])
    f = anyshape.compile(fn, backend=backend)
    for x in (numbers, numbers[:2], numbers[:1], numbers > 1, numbers[:2].double()):
        assert difference(fn, f, (x.clone(),)) is None
    assert f.fallbacks == {}


def _viewed_before_a_break(x: Tensor) -> tuple[Tensor, Tensor]:
    v = x.view(x.shape)
    torch._dynamo.graph_break()
    return x.reshape(x.shape[0], -1), v


def _flat_rows(v: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return x.reshape(x.shape[0], -1), v.reshape(v.shape[0], -1)


def _columns(n: int) -> Tensor:
    return torch.empty_strided((n, 2), (1, n)).normal_()  # transposed, and no view


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_an_input_that_another_is_a_view_of_keeps_its_sizes(backend: str) -> None:
    # As the base of a view its sizes were made anew, and with unrelated strides a `reshape` was a copy.
    check(_viewed_before_a_break, [(_columns(n),) for n in (1, 2, 3, 1, 5)], backend=backend)
    columns = [_columns(n) for n in (1, 2, 3, 1, 5)]
    check(_flat_rows, [(x.view(x.shape), x) for x in columns], backend=backend)
    check(_flat_rows, [(x, x.view(x.shape)) for x in columns], backend=backend)


def _both(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x + y.sum(), y.reshape(-1)


def test_inputs_that_share_memory_and_are_only_read() -> None:
    with expect_programs(1):
        check(_both, [(x, x.detach()) for x in map(torch.randn, (3, 1, 0, 5))])
    f = anyshape.compile(lambda x, y: (x.add_(1), y + 1), backend="aot_eager")
    x = torch.randn(4)
    with pytest.warns(anyshape.FallbackWarning):
        _, after = f(x, x.detach())
    torch.testing.assert_close(after, x + 1)


def _rest_written(x: Tensor) -> Tensor:
    x += 1
    return x[1:].flatten()


def _rest_contiguous(x: Tensor) -> tuple[Tensor, Tensor]:
    x.mul_(2)
    return x[1:].contiguous(), x[:, 1:].reshape(-1)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("fn", [_rest_written, _rest_contiguous])
def test_what_eager_copies_of_a_written_input_is_a_copy(fn: Callable[..., Any], backend: str) -> None:
    calls = [(x,) for n, m in [(3, 4), (5, 2), (1, 4), (3, 1), (2, 3)] for x in layouts(n, m)]
    check(fn, calls, backend=backend)
