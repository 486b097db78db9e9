"""The default backend: one program for every size, sizes 0 and 1 among them, equal to eager."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._inductor.utils import fresh_cache, run_and_get_code
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import anyshape
from anyshape._torch.repairs.inductor import dynamic_lowerings
from anyshape.testing import difference, expect_programs

R = torch.randn
TABLE = torch.arange(20.0).reshape(10, 2)
PAIRS = ((5, 7), (3, 4), (1, 4), (3, 1), (1, 1), (0, 4), (3, 0), (16, 33))
ROWS = ((5, 8), (3, 8), (1, 8), (0, 8), (40, 8))


def _conv(x: Tensor, w: Tensor) -> Tensor:
    return F.max_pool2d(torch.relu(F.conv2d(x, w, padding=1)), 2).mean((2, 3))


CASES: list[tuple[str, Callable[..., Any], list[tuple[Any, ...]]]] = [
    ("pointwise", lambda x, y: torch.relu(x * 2 + y).sigmoid(), [(R(s), R(s)) for s in PAIRS]),
    ("softmax", lambda x: x.softmax(-1), [(R(s),) for s in PAIRS]),
    ("layer_norm", lambda x, w: F.layer_norm(x, (8,), w), [(R(s), R(8)) for s in ROWS]),
    ("matmul", lambda x, y: torch.tanh(x @ y), [(R(n, m), R(m, 3)) for n, m in PAIRS]),
    ("conv_pool", _conv, [(R(b, 2, h, w), R(3, 2, 3, 3)) for b, h, w in [(2, 8, 8), (1, 6, 9), (3, 2, 2), (0, 8, 8)]]),
    ("cat", lambda x, y: torch.cat([x, y], 1) + 1, [(R(n, m), R(n, 3)) for n, m in PAIRS]),
    ("topk", lambda x, k: torch.topk(x, k).values * 2, [(R(3, n), k) for n, k in [(9, 4), (9, 1), (5, 5), (1, 1), (7, 0)]]),
    ("embedding", lambda i: F.embedding(i, TABLE).sum(0), [(torch.randint(0, 10, s),) for s in PAIRS]),
    ("mean", lambda x: x.mean(0) - x.sum(1).mean(), [(R(s),) for s in PAIRS]),
    ("cumsum", lambda x: x.cumsum(0) * 2, [(R(s),) for s in PAIRS]),
    ("masked_fill", lambda x: x.masked_fill(x > 0, -1.0), [(R(s),) for s in PAIRS]),
    ("index", lambda x, i: x[i] + 1, [(R(6, m), torch.randint(0, 6, (n,))) for n, m in PAIRS]),
    ("select", lambda x, i: x.select(0, i) + 1, [(R(n, 3), i) for n in (5, 2, 1) for i in (n - 1, 0, -1)]),
    ("narrow", lambda x, i: torch.narrow(x, 0, i, 1) + 1, [(R(n, 3), i) for n, i in [(5, 3), (7, 0), (2, 1), (1, 0)]]),
    ("transpose", lambda x: x.t().contiguous() + 1, [(R(s),) for s in PAIRS]),
    ("arange", lambda x: x + torch.arange(x.shape[0])[:, None], [(R(s),) for s in PAIRS]),
    ("nonzero", lambda x: x[x > 0].sum(), [(R(s),) for s in PAIRS]),
]  # fmt: skip


@pytest.mark.parametrize(("fn", "calls"), [pytest.param(fn, calls, id=name) for name, fn, calls in CASES])
def test_one_program(fn: Callable[..., Any], calls: list[tuple[Any, ...]]) -> None:
    f = anyshape.compile(fn)
    with expect_programs(1):
        for number, arguments in enumerate(calls):
            text = difference(fn, f, arguments, rtol=1e-4, atol=1e-5)
            assert text is None, f"call {number}: {text}"
    assert f.fallbacks == {}


@pytest.mark.parametrize("order", [(0, 1, 5), (1, 5, 0)])
def test_special_sizes_first(order: tuple[int, ...]) -> None:
    fn = lambda x: x.softmax(-1).sum(0)
    f = anyshape.compile(fn)
    with expect_programs(1):
        for n in order:
            assert difference(fn, f, (R(n, 4),), rtol=1e-4, atol=1e-5) is None


def test_training() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    f = anyshape.compile(model)
    with expect_programs(1):
        for n in (5, 1, 0, 12):
            x = R(n, 4)
            grads = []
            for call in (f, model):
                model.zero_grad()
                call(x).square().sum().backward()
                grads.append([p.grad.clone() for p in model.parameters()])
            for mine, theirs in zip(*grads, strict=True):
                torch.testing.assert_close(mine, theirs)


def test_broadcasts_have_a_program_for_each_pattern() -> None:
    fn = lambda x, y: x * y + 1
    f = anyshape.compile(fn)
    with expect_programs(2):
        for n in (4, 9, 2):
            for m in (1, n):
                assert difference(fn, f, (R(n, 3), R(m, 3))) is None


def test_mode_and_options() -> None:
    fn = lambda x: torch.sin(x).sum(0)
    for f in (
        anyshape.compile(fn, mode="default"),
        anyshape.compile(fn, options={"max_fusion_size": 8}),
    ):
        with expect_programs(1):
            for n in (4, 1, 0):
                assert difference(fn, f, (R(n, 3),)) is None


@pytest.mark.parametrize(
    "fn",
    [
        pytest.param(lambda x: F.adaptive_avg_pool2d(x + 1, (7, 3)), id="adaptive_avg_pool2d"),
        pytest.param(lambda x: F.adaptive_max_pool2d(x, 3), id="adaptive_max_pool2d"),
        pytest.param(lambda x: F.glu(x, 2), id="glu"),
    ],
)
def test_calls_for_which_inductor_wants_sizes_as_numbers(fn: Callable[..., Any]) -> None:
    f = anyshape.compile(fn, specialize="never")
    with expect_programs(1):
        for n in (4, 6, 12, 2, 10):
            x = torch.randn(2, 3, n, n + 1, requires_grad=True)
            text = difference(fn, f, (x,), backward=True, rtol=1e-4, atol=1e-4)
            assert text is None, f"{n}: {text}"


CONVOLUTIONS = {
    "in": lambda x: F.conv2d(x * 2, torch.ones(3, x.shape[1], 2, 2), padding=1),
    "out": lambda x: F.conv2d(x, torch.ones(2 * x.shape[1], x.shape[1], 2, 2), stride=2) + 1,
    "depthwise": lambda x: F.conv2d(x, torch.ones(x.shape[1], 1, 3, 3), groups=x.shape[1], padding=1).relu(),
    "transposed": lambda x: F.conv_transpose2d(x, torch.ones(x.shape[1], 2, 2, 2)),
}


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=["rows", "channels_last"])
@pytest.mark.parametrize("fn", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_convolutions_of_any_number_of_channels(fn: Callable[..., Any], memory_format: torch.memory_format) -> None:
    f = anyshape.compile(fn, specialize="never")
    with torch.no_grad(), expect_programs(1):
        for n, channels in ((2, 3), (3, 5), (2, 1), (1, 2), (0, 4)):
            x = R(n, channels, 5, 6).to(memory_format=memory_format)
            text = difference(fn, f, (x,), rtol=1e-4, atol=1e-4)
            assert text is None, f"{(n, channels)}: {text}"


def test_a_convolution_with_a_gradient_lies_as_in_eager() -> None:
    fn = lambda x: F.conv2d(x, torch.ones(2, x.shape[1], 2, 1))
    f = anyshape.compile(fn, specialize="never")
    for n, channels in ((32, 8), (3, 5)):
        x = R(n, channels, 2 * n, 17)[:, :, ::2, ::2].requires_grad_()
        text = difference(fn, f, (x,), backward=True, rtol=1e-4, atol=1e-4)
        assert text is None, f"{(n, channels)}: {text}"


TABLE = torch.arange(40.0).reshape(2, 20)
CLAMPS = hasattr(torch._inductor.lowering, dynamic_lowerings._TELLS_SLICES)  # both bounds, where they are symbolic


@pytest.mark.parametrize(
    ("cut", "compiled"),
    [
        (lambda n: TABLE[:, :n], True),
        (lambda n: TABLE[:, :n:3], True),
        (lambda n: TABLE[:, n:], True),
        (lambda n: TABLE[:, -n - 1 :], True),
        (lambda n: TABLE[:, n : 2 * n], True),
        (lambda n: TABLE[:, n - 4 : 7], True),
        (lambda n: TABLE[:, :-n], CLAMPS),
        (lambda n: TABLE[:, 2 : n + 1], True),
    ],
)
def test_parts_of_a_table_of_fixed_length(cut: Callable[[int], Tensor], compiled: bool) -> None:
    """As positions are in models; the bounds may lie beyond the table, or count from its end."""
    f = anyshape.compile(lambda x: cut(x.shape[0]) * 2)
    for n in (5, 25, 20, 21, 2, 1, 0, 7):
        assert torch.equal(f(torch.zeros(n)), cut(n) * 2), n
    assert len(f.programs) <= 2
    assert not compiled or not f.fallbacks


def _shifted(x: Tensor) -> Tensor:
    x[1:] = x[:-1].clone()
    return x


def _doubled(x: Tensor) -> Tensor:
    x[1:] = x[:-1] * 2
    return x


def _made_here(x: Tensor) -> Tensor:
    y = x + 1
    y[2:, 1:] = y[:-2, :-1].clone()
    return y


def _turned(x: Tensor) -> Tensor:
    x.copy_(x.flip(0))
    return x * 2


def _masked_after_a_scatter(x: Tensor) -> Tensor:
    y = x.index_copy(0, torch.arange(x.shape[0]).flip(0), x * 2)
    y[y > 0] = 1
    return y


def _filled_after_a_scatter(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.index_copy(0, torch.arange(x.shape[0]).flip(0), x * 2)
    total = y.sum()
    return total, y.fill_(3)


@pytest.mark.parametrize(
    "fn", [_shifted, _doubled, _made_here, _turned, _masked_after_a_scatter, _filled_after_a_scatter]
)
def test_writes_of_what_is_read_there(fn: Callable[..., Any]) -> None:
    f = anyshape.compile(fn, specialize="never")
    for shape in ((7, 3), (40, 33), (2, 2), (1, 5)):
        assert difference(fn, f, (R(shape),)) is None, shape


def test_packed_projections_are_copied_without_divisions() -> None:
    block = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    attend = lambda x: block(x, x, x, need_weights=False)[0]
    with torch.no_grad():
        result, code = run_and_get_code(anyshape.compile(attend, specialize="never"), x := R(3, 7, 32))
        torch.testing.assert_close(result, attend(x))
    kernels = [line for text in code for line in text.splitlines() if "in_ptr" in line]
    assert kernels and not [line for line in kernels if "div_floor" in line or "%" in line]


def _clones(x: Tensor) -> list[Tensor]:
    y = (x * 2).clone()
    return [y, y.clone()]


def _clone_of_a_buffer(x: Tensor) -> list[Tensor]:
    y = x * 2
    torch.add(y, y, out=y)
    return [y.any(-1), y, y.clone().unsqueeze_(0)]


@pytest.mark.parametrize("fn", [_clones, _clone_of_a_buffer])
def test_results_that_are_copies_of_one_another(fn: Callable[..., Any]) -> None:
    f = anyshape.compile(fn, specialize="never")
    with expect_programs(1):
        for shape in ((3, 5), (1, 1), (7, 4)):
            assert difference(fn, f, (R(shape),)) is None, shape


def test_results_that_are_views_of_one_sum() -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        total = x.sum(0)
        return total[:2], total.reshape(total.shape[1], total.shape[0])

    f = anyshape.compile(fn, specialize="never")
    for n in (4, 2, 7):
        assert difference(fn, f, (R(3, n, n).transpose(1, 2),)) is None, n


def test_a_squeeze_in_place_with_a_gradient() -> None:
    fn = lambda x: x.clone().squeeze_()
    f = anyshape.compile(fn, specialize="never")
    for shape in ((5, 13, 1), (4, 3, 1), (1, 4, 2), (2, 3, 4)):
        assert difference(fn, f, (R(shape).requires_grad_(),), backward=True) is None, shape


def test_a_transform_of_nothing() -> None:
    fn = lambda x: torch.fft.fft(torch.diff(x, dim=1) * 2)
    f = anyshape.compile(fn, specialize="never")
    for shape in ((3, 4, 5), (16, 0, 16), (3, 4, 0), (2, 7, 1)):
        assert difference(fn, f, (R(shape),)) is None, shape


@pytest.mark.parametrize(
    "read", [lambda y: y[1:] * 2, lambda y: y.t() @ y, lambda y: y @ (y.t() * 0.5)], ids=["part", "turned", "computed"]
)
def test_views_of_what_is_written_over_later(read: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """They are read by name, and what is written has taken the name by then (until 2.13)."""

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x @ x
        return read(y), y.index_put((y > 0,), torch.ones(()))

    f = anyshape.compile(fn, specialize="never")
    for n in (4, 7, 1, 0):
        assert difference(fn, f, (R(n, n),)) is None, n


def test_a_roll_of_images_that_lie_channels_last() -> None:
    fn = lambda x: x.roll(1, 0)
    f = anyshape.compile(fn, specialize="never")
    for shape in ((3, 2, 3, 4), (2, 3, 4, 5), (5, 2, 2, 2)):
        image = R(shape).contiguous(memory_format=torch.channels_last)
        assert difference(fn, f, (image,)) is None, shape


ROLLS = """
import torch, anyshape
from anyshape import ops
from anyshape.testing import difference

functions = [lambda x: torch.roll(x.movedim(-1, 1), 1, 2).movedim(1, -1).view(-1), lambda x: torch.roll(x.movedim(-1, 1), 1, 2)]
for by_rule in (True, False):
    if not by_rule:
        del ops.RULES[torch.roll]
    for fn in functions:
        torch.compiler.reset()
        f = anyshape.compile(fn)
        found = [difference(fn, f, (torch.randn(2, n, 4, 5),)) for n in (3, 5, 1, 0, 2)]
        print(found if by_rule else [])
"""


@pytest.mark.slow
def test_code_that_lies_otherwise_is_another_in_inductors_cache(tmp_path: pathlib.Path) -> None:
    """A second process was given the code of calls that are equal and whose results lie in another order (2.15)."""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    for _ in range(2):
        child = subprocess.run(
            [sys.executable, "-c", ROLLS], env=environment, capture_output=True, text=True, check=True
        )
        assert child.stdout.splitlines()[:2] == [str([None] * 5)] * 2


@pytest.mark.parametrize("training", [False, True])
def test_parts_of_what_may_be_nothing(training: bool) -> None:
    fn = lambda x: sum(part.sum() * i for i, part in enumerate(x[:5].split(2)))
    f = anyshape.compile(fn, specialize="never")
    for n in (0, 3, 1, 0, 9):  # of 5 rows at most there are one, two and three parts
        assert difference(fn, f, (torch.randn(n, n, requires_grad=training),), backward=training) is None, n
    assert not f.fallbacks and len(f.programs) == 3


@pytest.mark.parametrize("sizes", [(5, 0, 1, 3), (0, 5), (1, 0)])
def test_dropout_of_an_empty_batch(sizes: tuple[int, ...]) -> None:
    """For its mask eager's kernel gives what is no bool, at which code of torch 2.15 raised."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2))
    f = anyshape.compile(net)
    with expect_programs(1):
        for n in sizes:
            x = torch.randn(n, 4, requires_grad=True)
            gradients = []
            for call in (f, net):
                torch.manual_seed(0)
                gradients.append(torch.autograd.grad(call(x).sum(), (x, *net.parameters())))
            torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x + torch.zeros_like(x),
        lambda x: torch.zeros(*x.shape[1:]) + x,
        lambda x: (x - 0, x * 2),
        lambda x: x * 1,
        lambda x: (x / torch.ones_like(x)).view(-1)[1:],
        lambda x: (x * 1, x * 1),
    ],
    ids=["sum", "broadcast", "difference", "product", "view", "twice"],
)
def test_what_is_left_out_is_no_input(fn: Callable[..., Any], training: bool) -> None:
    """Inductor gave back the input itself: who writes to the result must not write to it."""
    f = anyshape.compile(fn, specialize="never")
    for n, m in ((3, 4), (1, 1), (0, 2), (1, 5)):
        for x in (torch.randn(n, m), torch.randn(n, 2 * m)[:, ::2]):
            x.requires_grad_(training)
            assert difference(fn, f, (x,), backward=training) is None, (n, m)
            before = x.detach().clone()
            for result in pytree.tree_leaves(f(x)):
                result.detach().add_(1)
            assert torch.equal(x.detach(), before)


def test_code_out_of_inductors_cache_is_for_as_many_sizes_as_when_it_was_made() -> None:
    """The lesser of two sizes is handed to the gradient, and whether it is that was asked with Python's `min`."""
    fn = lambda x: torch.linalg.matrix_norm(x, "nuc")
    with fresh_cache():
        for _ in range(2):
            torch.compiler.reset()
            f = anyshape.compile(fn)
            with expect_programs(1):
                for n, m in ((2, 4), (4, 4), (5, 3)):
                    assert difference(fn, f, (torch.randn(n, m, requires_grad=True),), backward=True) is None


def test_what_is_kept_for_a_gradient_is_laid_out_by_the_sizes_of_each_call() -> None:
    """Inductor lays it out as it likes, and torch until 2.13 had the gradient compiled for the first sizes."""

    def attention(x: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(x, x, x)

    f = anyshape.compile(attention)
    for n, m in ((2, 2), (3, 3), (5, 2), (2, 7)):
        x = torch.randn(n, 2 * m + 1)[:, 1::2].requires_grad_()
        assert difference(attention, f, (x,), backward=True) is None
    assert len(f.programs) == 1


CONVOLUTIONS: dict[str, tuple[Callable[..., Tensor], Callable[..., tuple[Tensor, ...]]]] = {
    "images": (F.conv2d, lambda c, n: (torch.randn(2, c, n + 2, n), torch.randn(4, c, 3, 2))),
    "signals": (F.conv1d, lambda c, n: (torch.randn(2, c, n + 2), torch.randn(4, c, 3))),
    "a group for each channel": (
        lambda x, w: F.conv2d(x, w, groups=w.shape[0]),
        lambda c, n: (torch.randn(2, c, n, n), torch.randn(c, 1, 2, 2)),
    ),
    "channels last": (
        F.conv2d,
        lambda c, n: tuple(
            t.to(memory_format=torch.channels_last) for t in (torch.randn(2, c, n, n), torch.randn(4, c, 2, 2))
        ),
    ),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_gradients_of_convolutions_of_any_size_are_one_program(name: str) -> None:
    """Inductor pins sizes of images and weights to choose among kernels."""
    convolve, make = CONVOLUTIONS[name]
    f = anyshape.compile(convolve)
    for c, n in ((3, 5), (2, 4), (5, 7), (4, 6)):
        given = tuple(t.requires_grad_() for t in make(c, n))
        assert difference(convolve, f, given, backward=True, rtol=1e-3, atol=1e-3) is None
    assert len(f.programs) == 1 and f.fallbacks == {}


def test_gradients_of_convolutions_lie_as_traced() -> None:
    """For an empty batch eager's kernel gives the gradient of a channels-last weight contiguous; its fake does not."""
    f = anyshape.compile(F.conv2d)
    for batch in (2, 0, 3):
        weight = torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last).requires_grad_()
        given = (torch.randn(batch, 3, 5, 5).requires_grad_(), weight)
        assert difference(F.conv2d, f, given, backward=True, rtol=1e-3, atol=1e-3) is None
    assert f.fallbacks == {}


def test_a_cnn_trained_on_images_of_any_size_is_one_program() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 2, 3))
    f = anyshape.compile(model)
    with expect_programs(1):
        for batch, height, width in ((2, 8, 8), (3, 9, 11), (4, 12, 7), (5, 10, 10)):
            x = torch.randn(batch, 3, height, width)
            wanted = torch.autograd.grad(model(x).sum(), list(model.parameters()))
            found = torch.autograd.grad(f(x).sum(), list(model.parameters()))
            torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)


def test_a_window_of_one_element_is_squeezed() -> None:
    """Inductor cannot prove that there is one, in a program for sizes at which there is."""

    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        window = x[..., -2:-1]
        return window.squeeze(), window.squeeze(-1) + 1

    for sizes in ((2, 1, 0, 4), (0, 3), (1, 2)):
        f = anyshape.compile(fn)
        for size in sizes:
            assert difference(fn, f, (torch.randn(size),)) is None
            assert difference(fn, f, (torch.randn(3, size),)) is None


def test_a_size_that_is_learnt_while_code_is_planned_for_another() -> None:
    """Sizes of 0 and 1 are planned as larger ones, until it is found that the program is for no others."""

    def fn(x: Tensor) -> Tensor:
        return torch.kron(x, x)

    f = anyshape.compile(fn)
    for size in (3, 1, 0):
        assert difference(fn, f, (torch.randn(size, size, requires_grad=True),), backward=True) is None
    assert f.fallbacks == {}


def test_how_many_parts_there_are_is_not_what_is_planned_for() -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, x.split(3, dim=1)[0]

    f = anyshape.compile(fn, shapes={"x": "a b c"}, hints={"b": 24})
    for sizes in ((2, 5, 3), (2, 2, 3), (2, 24, 3), (0, 1, 3), (4, 4, 1)):
        assert difference(fn, f, (torch.randn(sizes),)) is None
    assert f.fallbacks == {} and len(f.programs) == 3


def test_parts_of_complex_numbers_of_a_single_column() -> None:
    def fn(x: Tensor) -> Tensor:
        return torch.cat(x.chunk(2, dim=-1)[::-1], dim=-1)

    f = anyshape.compile(fn)
    for sizes in ((1, 1), (2, 5), (3, 4)):
        assert difference(fn, f, (torch.randn(sizes, dtype=torch.complex64),)) is None
    assert f.fallbacks == {}


@pytest.mark.parametrize("shuffled", [lambda n: torch.randperm(n), lambda n: torch.randperm(n)[: n // 2]])
def test_rows_in_a_random_order(shuffled: Callable[[int], Tensor]) -> None:
    """A pattern of Inductor's for the second of these finds the first, and raises (torch 2.11 and 2.13)."""

    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        order = shuffled(x.shape[0])
        return x[order], order

    f = anyshape.compile(fn)
    for n in (7, 3, 1, 0, 12):
        results = []
        for function in (fn, f):
            torch.manual_seed(n)
            results.append(function(torch.arange(2.0 * n).view(n, 2)))
        torch.testing.assert_close(*results)
    assert f.fallbacks == {}


@pytest.mark.parametrize("size", [1, 2])
def test_gradients_of_pools_lie_as_traced(size: int) -> None:
    def fn(x: Tensor) -> Tensor:
        return F.adaptive_max_pool1d(x, size)

    f = anyshape.compile(fn)
    for sizes in ((2, 2, 2), (3, 5, 4), (1, 4, 3)):
        x = torch.randn(sizes).movedim(-1, 1).requires_grad_()
        assert difference(fn, f, (x,), backward=True) is None
    assert f.fallbacks == {}


@pytest.mark.parametrize("part", [lambda x: x[..., 1::2], lambda x: x[..., ::3], lambda x: x[None].squeeze(0)[:, ::2]])
def test_a_part_with_gaps_of_what_is_computed_has_its_strides(part: Callable[[Tensor], Tensor]) -> None:
    """The order of strides cannot be proved where a size may be 0 or 1, and was made by a copy (torch 2.13)."""

    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        return part(x.sin()), part(x @ x.t())

    f = anyshape.compile(fn)
    for sizes in ((5, 5), (4, 9), (7, 6)):
        assert difference(fn, f, (torch.randn(sizes),), rtol=1e-3, atol=1e-3) is None
    assert len(f.programs) == 1


def test_a_part_with_gaps_of_an_input_is_one_program_below_its_step_too() -> None:
    """Which of its strides is the lesser was a question: below the step it is that of the rows."""
    fn = lambda x: x[..., 1::3]
    f = anyshape.compile(fn)
    for sizes in ((2, 9), (2, 2), (2, 3), (4, 1), (3, 0), (5, 8)):
        assert difference(fn, f, (torch.randn(sizes),)) is None
    assert len(f.programs) == 1


def test_the_lesser_of_two_sizes_is_no_question() -> None:
    """The strides of an output are told as text, and `min` in it asked which is the less (torch 2.11 and 2.13)."""
    f = anyshape.compile(torch.linalg.svdvals)
    for sizes in ((2, 3, 2), (2, 2, 2), (2, 2, 3), (1, 4, 5)):
        assert difference(torch.linalg.svdvals, f, (torch.randn(sizes),), rtol=1e-3, atol=1e-3) is None
    assert len(f.programs) == 1
