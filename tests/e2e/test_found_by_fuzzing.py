"""Faults that the fuzzer found, each as small as it was shrunk to."""

from __future__ import annotations

import linecache
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._functorch import config as functorch_config

import anyshape
from anyshape.engine.engine import UNSUITED
from anyshape.testing import difference, expect_programs

BACKENDS = ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]


def agrees(fn: Callable[..., Any], *calls: tuple[Any, ...], backend: str = "aot_eager", backward: bool = False) -> Any:
    compiled = anyshape.compile(fn, backend=backend)
    for number, arguments in enumerate(calls):
        text = difference(fn, compiled, arguments, backward=backward, rtol=1e-4, atol=1e-4)
        assert text is None, f"call {number}: {text}"
    return compiled


def test_a_written_view_of_an_input_with_an_offset_lies_where_eagers_does() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten()
        flat.mul_(2)
        return flat

    agrees(fn, (torch.arange(12.0).reshape(4, 3)[2:],), (torch.arange(18.0).reshape(6, 3)[1:],))


@pytest.mark.parametrize("first", [0, 1])
def test_gradients_of_variance_after_a_call_with_one_element(first: int) -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        product = torch.outer(x, x)
        return torch.var(product), x[:1]

    sizes = (first, 7, 1, 2)
    agrees(fn, *((torch.linspace(-1, 2, n).requires_grad_(),) for n in sizes), backward=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_size_born_from_data_is_squeezed_where_it_is_one(backend: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        found = torch.where(x > 0)[0].squeeze()
        return found.contiguous().as_strided(found.shape, found.stride())

    agrees(fn, (torch.tensor([1.0, 2.0]),), (torch.tensor([1.0, -2.0]),), (torch.tensor([-1.0]),), backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("other", [lambda x: x[:1], lambda x: x], ids=["one", "all"])
def test_a_size_born_from_data_is_stretched_where_it_is_one(other: Any, backend: str) -> None:
    fn = lambda x: x[x > 0] + other(x)
    agrees(fn, (torch.tensor([1.0, 2.0]),), (torch.tensor([1.0, -2.0]),), backend=backend)


@pytest.mark.parametrize("norm", [lambda x: F.batch_norm(x, None, None, training=True), F.instance_norm])
@pytest.mark.parametrize("sizes", [[(0, 8, 3)], [(4, 8, 3), (0, 8, 3), (4, 8, 3)]])
def test_normalising_nothing_gives_nothing(norm: Any, sizes: list[tuple[int, ...]]) -> None:
    agrees(norm, *((torch.randn(s),) for s in sizes))


@pytest.mark.parametrize("frequencies", [torch.fft.fftfreq, torch.fft.rfftfreq])
def test_frequencies_are_one_program_for_every_length_but_none(frequencies: Any) -> None:
    fn = lambda x: frequencies(x.shape[0])
    compiled = agrees(fn, *((torch.ones(n),) for n in (5, 4, 1, 2, 7, 0)))
    assert len(compiled.programs) == 2


@pytest.mark.parametrize("options", [{}, {"stride": 1, "padding": 1}, {"ceil_mode": True, "dilation": 2}], ids=str)
@pytest.mark.parametrize("grad", [False, True])
def test_pooling_in_one_dim_is_one_program_for_every_length(options: dict[str, Any], grad: bool) -> None:
    fn = lambda x: F.max_pool1d(x, 3, **options)
    shapes = [(2, 3, 9), (1, 2, 7), (4, 1, 5), (3, 16), (5, 8), (2, 3, 2)]
    compiled = agrees(fn, *((torch.randn(s).requires_grad_(grad),) for s in shapes), backward=grad)
    assert len(compiled.programs) <= 2  # with a batch and without


def test_unfolding_a_sliced_input_comes_to_an_end() -> None:
    agrees(lambda x: F.unfold(x, (1, 2)), (torch.randn(7, 2, 7, 5)[..., 1::2],), (torch.randn(2, 3, 1, 9)[..., 1::2],))


def test_a_program_whose_sizes_divide_by_one_that_was_zero_before() -> None:
    fn = lambda x: torch.fft.fftshift(torch.kron(x, x), dim=-1)
    agrees(fn, *((torch.ones(s).requires_grad_(),) for s in ((5, 0), (4, 7))), backward=True)


@pytest.mark.parametrize("view", [torch.flatten, lambda x: x.unsqueeze(1).flatten(), lambda x: x[:1]])
def test_a_written_view_lies_where_eagers_does_when_a_later_input_has_an_offset(view: Any) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        seen = view(x)
        seen.mul_(2)
        return seen

    agrees(fn, (torch.arange(8).reshape(2, 4),), (torch.arange(4).reshape(4, 1)[2:],), (torch.arange(21.0)[7:],))


def test_gradients_of_views_of_an_expanded_leaf_are_eagers() -> None:
    fn = lambda x: (x[: x.shape[0] // 2], x.unbind(1)[0])
    leaf = lambda n: torch.ones(1, 2).expand(n, 2).detach().requires_grad_()
    agrees(fn, (leaf(4),), (leaf(2),), (leaf(7),), backward=True)


def test_a_copy_that_is_a_view_for_a_batch_of_one_lies_as_eagers() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        batch, length, heads, width = x.shape
        return x.transpose(1, 2).reshape(batch * heads, length, width) + 1

    agrees(fn, *((torch.randn(b, 5, 2, 4),) for b in (2, 1, 3)))


def of_text(text: str) -> Callable[..., Any]:
    """A function whose `assert` is Python's own: pytest rewrites those of this file."""
    name = f"<{text}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    scope: dict[str, Any] = {"torch": torch}
    exec(compile(text, name, "exec"), scope)
    return scope["fn"]  # type: ignore[no-any-return]


ASSERTING = """def fn(x):
    found = x.nonzero()
    assert found.shape[0] != 2
    return found
"""
ASSERTING_VALUES = """def fn(x):
    assert (x > 0).all(), "not all of them"
    return x + 1
"""
CHECKING = ASSERTING.replace("assert found.shape[0] != 2", "torch._check(found.shape[0] != 2)")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("text", [ASSERTING, ASSERTING_VALUES, CHECKING], ids=["sizes", "values", "check"])
def test_an_assertion_about_what_is_computed_raises_what_eager_does(text: str, backend: str) -> None:
    calls = [(torch.tensor(x),) for x in ([1.0, 2.0, 3.0], [0.0, 1.0, 1.0], [0.0])]
    told_by_eager = {} if text is ASSERTING_VALUES else {UNSUITED: 1}
    assert agrees(of_text(text), *calls, backend=backend).fallbacks == told_by_eager


def test_a_mean_of_complex_numbers() -> None:
    f = anyshape.compile(lambda x: x.mean(1, keepdim=True), backend="aot_eager")
    with expect_programs(1):
        for n in (3, 2, 5, 1):
            x = torch.randn(2, n, dtype=torch.complex64)
            torch.testing.assert_close(f(x), x.mean(1, keepdim=True))


@pytest.mark.parametrize("shape", [(0, 1, 1), (0, 3, 4), (2, 0, 4), (3, 4)])
def test_attention_without_heads(shape: tuple[int, ...]) -> None:
    attention = lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=x.shape[-2] > 1, scale=0.3)
    f = anyshape.compile(attention, backend="aot_eager")
    for given in (shape, (2, 3, 4)):
        x = torch.randn(*given)
        torch.testing.assert_close(f(x), attention(x))


def test_strides_of_a_transposed_copy_under_inductor() -> None:
    """A trace could not tell which of two strides is the smaller, and the code went by that."""
    f = anyshape.compile(lambda x: x.clone().transpose(0, -1))
    for shape in ((5, 6, 7), (2, 3, 4)):
        x = torch.randn(*shape)
        assert f(x).stride() == x.clone().transpose(0, -1).stride()


def test_parts_of_an_expanded_input_under_inductor() -> None:
    """The code read beyond the input: its stride of 0 was taken for that of a contiguous one."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        twice = torch.cat([x, x], dim=1)
        return twice.masked_fill(torch.ones(twice.shape[-2], twice.shape[-1]).tril() == 0, -1)

    agrees(fn, *((torch.randn(1, n).expand(n, n),) for n in (7, 5, 2)), backend="inductor")


@pytest.mark.parametrize("seen_first", [(2, 1, 2), (2, 3, 4), (4, 1, 1)])
def test_dims_around_one_of_size_one_that_do_not_follow_one_another(seen_first: tuple[int, ...]) -> None:
    """torch's fake kernels compare neighbours alone, and promise a view: of memory, here, that eager does not write."""

    def write(x: torch.Tensor) -> torch.Tensor:
        x.reshape(-1).add_(1)
        return x

    view: Callable[[torch.Tensor], torch.Tensor] = lambda x: x.view(-1) + 1
    sliced = lambda shape: torch.zeros(*shape[:-1], 2 * shape[-1] + 1)[..., 1::2]
    for fn in (write, view):
        agrees(fn, *((sliced(shape),) for shape in (seen_first, (2, 1, 2), (3, 1, 5), (1, 1, 3), (3, 1, 1))))


def test_strides_of_joined_parts_of_an_image_under_inductor() -> None:
    """A decomposition makes the same tensor twice one that is expanded, and its strides are others."""
    f = anyshape.compile(lambda x: torch.cat([x, x], 1), specialize=["n == 5"], shapes={"x": "n c h w"})
    image = lambda *shape: torch.randn(*shape).to(memory_format=torch.channels_last)
    for shape in ((4, 5, 6, 7), (5, 3, 4, 5), (2, 3, 4, 5), (5, 3, 4, 5), (5, 3, 4, 5)):
        x = image(*shape)
        assert f(x).stride() == torch.cat([x, x], 1).stride()
        assert f.wait(120)
    assert f.variants[0].calls


def test_the_gradient_of_a_running_product_is_one_program() -> None:
    """With no zero, one, and several, on the way."""
    with_zeros = lambda n, *at: torch.linspace(-1, 2, n * n).reshape(n, n).index_fill(1, torch.tensor(at).long(), 0)
    calls = [(with_zeros(n, *at).requires_grad_(),) for n, *at in ((3,), (4, 1), (5, 1, 3), (2, 0), (1,), (0,))]
    with expect_programs(1):
        agrees(lambda x: x.cumprod(1), *calls, backward=True)


def test_values_of_the_memory_that_is_written_under_inductor() -> None:
    """The code wrote over the rows that it was still to read; `torch.compile(dynamic=False)` does so too."""

    def turned(x: torch.Tensor) -> torch.Tensor:
        y = torch.msort(x)
        return y.index_copy(0, torch.arange(y.shape[0]).flip(0), y)

    agrees(turned, *((torch.randn(n, 3),) for n in (7, 4, 2, 1)), backend="inductor")


def test_gradients_of_averages_over_windows_that_are_cut_off_under_inductor() -> None:
    pool = lambda x: F.avg_pool1d(x, 2, ceil_mode=True)
    with expect_programs(1):
        agrees(
            pool, *((torch.randn(2, 3, n, requires_grad=True),) for n in (5, 4, 7)), backend="inductor", backward=True
        )


def test_filling_at_an_index_of_nothing_raises_what_eager_does_under_inductor() -> None:
    fill = lambda x: x.index_fill(0, torch.full((1,), 2), 1)
    agrees(fill, *((torch.ones(n),) for n in (3, 0, 1)), backend="inductor")


def test_strides_beside_a_call_that_has_an_effect_under_inductor() -> None:
    """AOTAutograd's list of what a graph returns has a token for the effect, and the graph has not."""

    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.linalg.solve(y @ y.mT + 9 * torch.eye(y.shape[-2]), y), torch.outer(x, x)

    agrees(fn, *((torch.randn(n), torch.randn(m, m)) for n, m in ((2, 0), (3, 2), (2, 4))), backend="inductor")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rows", [(6, 7, 8, 9), (7, 6, 9, 2)], ids=["even", "odd"])
def test_a_write_to_the_last_part_is_one_program(rows: tuple[int, ...], backend: str) -> None:
    """Functionalization asks whether the part would end beyond what it is a part of: where sizes are odd."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        whole = x.clone()
        whole.chunk(2)[1].add_(1)
        return whole

    with expect_programs(1):
        agrees(fn, *((torch.randn(n, 3),) for n in rows), backend=backend)


def test_parts_that_are_not_the_last_ones_are_told_apart() -> None:
    """A part that ends with the tensor at the capture, and before its end in other calls."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        whole = x.clone()
        whole.split(3)[1].add_(1)
        return whole

    agrees(fn, *((torch.randn(n, 2),) for n in (5, 9, 6, 4, 7)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("sizes", [(2, 3, 1), (3, 1, 2)], ids=["less", "whole"])
def test_a_write_to_the_only_part_is_one_program(sizes: tuple[int, ...], backend: str) -> None:
    """Whether the part is as long as it may be at most is asked of a number, the other way round."""

    def fn(x: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        whole = x.clone()
        torch.add(value, 1, out=whole.split(3, dim=1)[0])
        return whole

    with expect_programs(1):
        agrees(fn, *((torch.randn(2, n), torch.randn(2, n)) for n in sizes), backend=backend)


@pytest.mark.parametrize("first", [(3, 4), (4, 4)], ids=["unequal", "equal"])
def test_transforms_with_a_gradient_are_one_program_for_equal_sizes_too(first: tuple[int, int]) -> None:
    fn = lambda x: torch.fft.rfft(x, dim=0).abs().sum(0)
    calls = ((torch.randn(*s, requires_grad=True),) for s in (first, (5, 5), (5, 3), (1, 4), (4, 1), (2, 2)))
    with expect_programs(1):
        agrees(fn, *calls, backward=True)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("first", [7, 2, 1])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.fft.rfft(x).abs(),
        lambda x: torch.fft.rfft(x, n=x.shape[-1] + 1).abs(),
        lambda x: torch.fft.rfft2(x).abs(),
        lambda x: torch.fft.ihfft(x).abs(),
        lambda x: torch.fft.irfft(torch.complex(x, x * 2), n=2 * x.shape[-1] - 1),
    ],
    ids=["rfft", "longer", "rfft2", "ihfft", "irfft"],
)
def test_gradients_of_transforms_without_another_half_are_the_same_program(fn: Any, first: int, backend: str) -> None:
    """At lengths of 1 and 2 there is nothing to fill with zeros, or to count twice."""
    calls = ((torch.randn(3, n, requires_grad=True),) for n in (first, 5, 1, 2, 8, 3))
    with expect_programs(1):
        agrees(fn, *calls, backward=True, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("first", [(2, 4), (4, 3)], ids=["wide", "tall"])
@pytest.mark.parametrize(
    "fn",
    [
        torch.linalg.svdvals,
        lambda x: torch.linalg.svdvals(x[:, 1:]),
        lambda x: torch.linalg.matrix_norm(x, "nuc"),
        lambda x: torch.linalg.svd(x, full_matrices=False).S,
    ],
    ids=["svdvals", "part", "norm", "svd"],
)
def test_gradients_of_singular_values_are_one_program(fn: Any, first: tuple[int, int], backend: str) -> None:
    """Which two of three matrices are multiplied first is torch's choice by their sizes."""
    calls = ((torch.randn(*s, requires_grad=True),) for s in (first, (4, 4), (5, 3), (3, 6), (2, 2)))
    with expect_programs(1):
        agrees(fn, *calls, backward=True, backend=backend)


@pytest.mark.parametrize("first", [(2, 2), (4, 5)], ids=["one window", "several"])
def test_windows_with_a_gradient_are_one_program(first: tuple[int, int]) -> None:
    sizes = (first, (3, 2), (2, 6), (5, 4))
    calls = ((torch.randn(2, 3, *s, requires_grad=True),) for s in sizes)
    f = agrees(lambda x: F.unfold(x, 2), *calls, backward=True)
    assert len(f.programs) == 1, [p.behavior for p in f.programs]


def test_batch_norm_without_channels() -> None:
    """torch reads the number of channels beyond the sizes: whatever lies there, for a fake tensor as an address."""
    f = anyshape.compile(lambda x: F.batch_norm(x + 1, None, None, training=True) * 2, backend="aot_eager")
    assert f(torch.ones(0)).shape == (0,)
    with pytest.raises(IndexError, match="Dimension out of range"):
        f(torch.ones(3))
    assert any("batch_norm left to eager" in text for program in f.programs for text in program.graph_breaks)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_copy_of_a_copy_is_of_what_was_there(backend: str) -> None:
    """With one element the first copy is of the whole input, and Inductor left both out, written to or not."""

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        parts = torch.stack(x.roll(1, -1).unbind(-1), dim=0)
        x.mul_(2)
        return parts, x

    agrees(fn, *((torch.randn(n),) for n in (1, 3, 2)), backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("grad", [False, True], ids=["plain", "grad"])
def test_a_view_of_what_is_expanded_has_no_memory_of_its_own(grad: bool, backend: str) -> None:
    """It was looked for in the memory of the input with the strides of a copy, which has more elements."""

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pairs = x.view(*x.shape[:-1], x.shape[-1] // 2, 2).transpose(-2, -3)
        return pairs, pairs.detach(), x.sum(0)

    make = lambda n: torch.randn(1, n, requires_grad=grad).expand(n, n).detach().requires_grad_(grad)
    agrees(fn, *((make(n),) for n in (2, 6, 4)), backend=backend, backward=grad)


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_of_complex_tensors_with_gaps(backend: str) -> None:
    fn = lambda x: (x[:, 1:].unflatten(0, (-1, 2)), x[:, 1:].unflatten(0, (-1, 2)) * 2)
    calls = ((torch.randn(n, n + 1, dtype=torch.complex64),) for n in (2, 4, 6))
    agrees(fn, *calls, backend=backend)


BAD_TOKEN = """
import torch
import torch.nn.functional as F
import anyshape

table = torch.randn(5, 64)
f = anyshape.compile(lambda i: F.embedding(i, table) * 2)
tokens = torch.randint(0, 5, (512,))
f(tokens)
tokens[300] = 9
try:
    f(tokens)
except IndexError as error:
    print("told", type(error).__name__)
tokens[300] = 4
print("goes on", torch.equal(f(tokens), F.embedding(tokens, table) * 2))
"""


def test_a_bad_index_in_a_parallel_loop_does_not_end_the_process(tmp_path: pathlib.Path) -> None:
    """As it does in stock torch, whose kernel throws out of a loop that several threads run."""
    script = tmp_path / "bad_token.py"
    script.write_text(BAD_TOKEN)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["told IndexError", "goes on True"], done.stderr[-2000:]


def test_selecting_from_nothing() -> None:
    fn = lambda x: (x.select(1, 0) * 2, torch.trapezoid(x, dim=-2))
    f = agrees(fn, (torch.randn(2, 3),), (torch.randn(0, 2),), (torch.randn(5, 1),))
    with pytest.raises(IndexError, match="out of range"):
        f(torch.randn(4, 0))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_write_to_a_scalar_of_64_bits_is_not_lost(backend: str) -> None:
    """As it is in stock torch 2.13, which drops what gives a number that it knows."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        x.mul_(-1)
        return x

    agrees(fn, *((torch.tensor(v, dtype=torch.float64),) for v in (-0.25, 3.0)), backend=backend)


def test_a_write_to_a_scalar_that_a_call_has_written_is_not_lost() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(x.shape, dtype=torch.float64)
        torch.add(x, 1, out=y)
        return y.add_(y)

    agrees(fn, (torch.tensor(1.0),), (torch.tensor(2.0),))


@pytest.mark.filterwarnings("ignore::anyshape.FallbackWarning")
@pytest.mark.parametrize("sizes", [((2, 3), (3, 3), (2, 2)), ((1, 0), (1, 1)), ((3, 3), (2, 3), (4, 4))], ids=str)
def test_a_call_that_raises_for_some_sizes_is_tried_for_others(sizes: tuple[tuple[int, int], ...]) -> None:
    """torch 2.15 captures what follows in `except`: that is not for sizes at which nothing raises."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        try:
            y = x @ x
        except RuntimeError:
            y = x - 1
        return y * 2

    f = agrees(fn, *((torch.randn(size),) for size in sizes))
    assert len(f.programs) == 1 and sum(f.fallbacks.values()) == 1


@pytest.mark.filterwarnings("ignore::anyshape.FallbackWarning")
def test_what_the_data_makes_raise_is_caught() -> None:
    """What a call insists on is asserted in the graph, out of reach of the function's own `except`."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        places = torch.argwhere(x)
        try:
            return places @ places
        except RuntimeError:
            return places - 1

    f = agrees(fn, (torch.zeros(3, 3),), (torch.eye(2),), (torch.tensor(2.0),))
    assert sum(f.fallbacks.values()) == 3

    def plain(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0].select(0, 1)

    compiled = anyshape.compile(plain, backend="aot_eager", fullgraph=True)
    try:  # around the call, not in the function
        assert compiled(torch.tensor([1.0, 2.0, -1.0])) == 2
    except IndexError:
        pytest.fail("there are two")
    assert compiled.fallbacks == {}


PADS = """
import torch
import torch.nn.functional as F
import anyshape

f = anyshape.compile(lambda x: F.pad(x, (1, 0)), specialize="never")
for n in (0, 3, 0, 40):
    x = torch.randn(n)
    assert torch.equal(f(x), F.pad(x, (1, 0))), n
print(len(f.programs), f.fallbacks)
"""


def test_a_pad_of_nothing_does_not_end_the_process(tmp_path: pathlib.Path) -> None:
    """A vector that is loaded under a mask reaches beyond the tensor, and nothing has no address to reach beyond."""
    script = tmp_path / "pads.py"
    script.write_text(PADS)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.stdout == "1 {}\n", done.stderr[-2000:]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_pseudo_inverse_of_complex_numbers(backend: str) -> None:
    """The first call of a compiled graph is torch's to look at, which changes the values."""
    matrices = [torch.randn(n, 5, dtype=torch.complex64) for n in (3, 7, 1)]
    with expect_programs(1):
        agrees(torch.linalg.pinv, *((m,) for m in matrices), backend=backend)


@pytest.mark.parametrize("is_error", [False, True], ids=["warned", "raised"])
def test_operators_that_share_memory_they_should_not_are_still_found(is_error: bool) -> None:
    """torch warns of them, and raises where the environment has `CI`."""
    told = pytest.raises(RuntimeError, match="alias") if is_error else pytest.warns(match="alias")
    with torch.library._scoped_library("anyshape_tests", "FRAGMENT") as library:
        library.define("itself(Tensor x) -> Tensor")
        library.impl("itself", lambda x: x.view(-1), "CompositeExplicitAutograd")
        library.impl("itself", lambda x: x.new_empty(x.numel()), "Meta")
        call = torch.ops.anyshape_tests.itself
        f = anyshape.compile(lambda x: call(x) * 2, backend="aot_eager", fullgraph=True)
        with functorch_config.patch(error_on_custom_op_aliasing=is_error), told:
            f(torch.randn(4))


@pytest.mark.parametrize(
    "fn", [lambda x: x * 0, lambda x: 0 / x, lambda x: x.mean() * 0], ids=["product", "quotient", "mean of none"]
)
def test_products_with_zero_may_be_nan(fn: Callable[..., Any]) -> None:
    """Inductor took them for 0 (until 2.13)."""
    compiled = agrees(
        fn, *((torch.tensor([0.0, 1.0, torch.nan, torch.inf])[:n],) for n in (4, 0, 2)), backend="inductor"
    )
    assert len(compiled.programs) == 1


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.nonzero() + 1,
        lambda x: torch.argwhere(x) + torch.argwhere(x),
        lambda x: x.nonzero().flip(0),
        lambda x: (x.nonzero() + 1).T,
        lambda x: (x.nonzero() + 1).argsort(0),
    ],
    ids=["plus one", "sum of two", "flipped", "transposed", "sorted"],
)
def test_places_are_laid_out_as_eager_lays_them_out(fn: Callable[..., Any]) -> None:
    """Inductor keeps no strides that come out of the data, and `nonzero` gives a transposed tensor."""
    compiled = agrees(fn, *((torch.ones(n, m),) for n, m in ((3, 4), (1, 2), (0, 3), (2, 1))), backend="inductor")
    assert len(compiled.programs) == 1


def test_narrow_images_are_put_together_from_windows() -> None:
    """Inductor wrote beyond rows that are shorter than a vector (until 2.13)."""
    fold = lambda x: F.fold(x, (x.shape[-1] + 1, 2), (2, 2))
    agrees(fold, *((torch.randn(1, 8, n),) for n in (4, 6, 1, 33)), backend="inductor")
    images = [torch.randn(2, 2, n, 2, requires_grad=True) for n in (4, 6, 2)]
    agrees(lambda x: F.unfold(x, (2, 2)), *((x,) for x in images), backend="inductor", backward=True)


def test_a_view_of_what_is_joined_to_something_else_is_laid_out_as_in_eager() -> None:
    """Inductor lets it lie in what it is joined to."""

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = x.sum(1)  # joined to a column by the rule for `log_softmax`
        return F.cross_entropy(rows, torch.zeros(rows.shape[0], dtype=torch.int64)), rows.squeeze()

    agrees(fn, *((torch.ones(n, 2, m),) for n, m in ((2, 2), (3, 4), (2, 5))), backend="inductor")


@pytest.mark.parametrize("backend", BACKENDS)
def test_attention_over_nothing_has_the_shape_of_the_query(backend: str) -> None:
    shapes = [((0, 1), (1, 1, 1)), ((0, 4), (2, 3, 4)), ((3, 4), (2, 3, 4)), ((3, 4), (2, 0, 4)), ((0, 4), (0, 3, 4))]
    shapes += [((2, 0, 4), (1, 3, 4)), ((2, 3, 4), (5, 2, 0, 4))]
    calls = [tuple(torch.randn(s, requires_grad=True) for s in (query, key, key)) for query, key in shapes]
    agrees(F.scaled_dot_product_attention, *calls, backend=backend, backward=True)


def test_attention_over_nothing_refuses_what_eager_refuses() -> None:
    nothing, full = torch.ones(2, 0, 4), torch.ones(2, 3, 4)
    no_heads, keys = torch.ones(1, 0, 2, 4), torch.ones(1, 1, 3, 4)
    calls = [
        (nothing.to(torch.bfloat16), nothing, nothing),
        (nothing, full, full.double()),
        (nothing, nothing, nothing, torch.ones(0, 0, dtype=torch.float64)),
        (nothing, nothing, nothing, torch.ones(0, 0), 0.0, True),
        (full, nothing, full),
        (full, nothing, full[..., :0]),
        (no_heads, keys, keys),
        (no_heads, keys[..., :2], keys),
        (no_heads, keys.expand(1, 2, 3, 4), keys),
        (no_heads, keys.expand(2, 1, 3, 4), keys, torch.ones(2, 3)),
    ]
    for arguments in calls:
        agrees(F.scaled_dot_product_attention, arguments, backend="aot_eager")


def test_a_length_that_a_call_insists_on_is_not_taken_for_known_by_the_next_trace() -> None:
    """The last part was of one element, and a product of such parts was made for one of any length."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        part = x.chunk(2, dim=-1)[1]
        return torch.tensordot(part, part, dims=1)

    agrees(fn, *((torch.randn(n),) for n in (2, 4, 3, 6, 5)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_nearest_values_of_a_permuted_signal(backend: str) -> None:
    fn = lambda x: F.interpolate(x, size=4, mode="nearest")
    calls = [(torch.randn(a, b, c).permute(2, 1, 0),) for a, b, c in ((2, 3, 5), (4, 2, 3), (5, 5, 5))]
    with expect_programs(1):
        agrees(fn, *calls, backend=backend)
    agrees(fn, *((x.contiguous(),) for (x,) in calls), backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("view", [lambda v: v[None], lambda v: v[1:], lambda v: v.expand(2, v.shape[0])])
def test_a_view_of_what_was_put_before_its_source_is_written_to(view: Callable[..., Any], backend: str) -> None:
    """Inductor wrote over the source, and the view was of that."""

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        v = x.index_put((x > 0,), torch.ones((), dtype=x.dtype))
        x += 0.5
        return x, view(v)

    agrees(fn, *((torch.randn(n),) for n in (4, 1, 7)), backend=backend)
