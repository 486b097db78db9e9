"""Layout policies: what a program does with strides."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F

import anyshape
from anyshape.testing import difference, expect_programs


def five(n: int, m: int) -> Iterator[torch.Tensor]:
    """The same values in five layouts."""
    row = torch.randn(1, m)
    values = row.expand(n, m).contiguous()
    yield values
    yield values.t().contiguous().t()
    room = torch.zeros(n, 2 * m + 3)
    room[:, 1 : 2 * m + 1 : 2] = values
    yield room[:, 1 : 2 * m + 1 : 2]
    yield row.expand(n, m)
    yield torch.cat([torch.zeros(7), values.flatten()])[7:].view(n, m)


FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "pointwise": lambda x: torch.sin(x) * 2 + x,
    "softmax": lambda x: x.softmax(-1),
    "matmul": lambda x: x @ x.t(),
    "reshape of a result": lambda x: (x + 1).reshape(-1) * 2,
    "reshape of the input": lambda x: x.reshape(-1) * 2,
    "cat": lambda x: torch.cat([x, x * 2], 1),
    "layer_norm": lambda x: F.layer_norm(x, (x.shape[1],)),
    "view": lambda x: x.t()[1:],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_layout_has_one_program(name: str) -> None:
    fn = FUNCTIONS[name]
    f = anyshape.compile(fn, layout="any", backend="aot_eager")
    for n, m in ((6, 8), (3, 5), (1, 4), (0, 4), (7, 1)):
        for x in five(n, m):
            torch.testing.assert_close(f(x), fn(x), check_stride=False)
    assert [p.behavior for p in f.programs] == ["every size"] and not f.fallbacks


def test_any_layout_under_inductor_reads_contiguous_inputs_as_such() -> None:
    fn = FUNCTIONS["pointwise"]
    f = anyshape.compile(fn, layout="any")
    for x in (*five(6, 8), *five(3, 40), *five(1, 4)):
        torch.testing.assert_close(f(x), fn(x), check_stride=False)
    (program,) = f.programs
    (variant,) = program.variants
    assert variant.text == "contiguous inputs" and 0 < variant.calls < program.calls


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_writes_reach_the_input_in_any_layout(backend: str) -> None:
    fn = lambda x: x.add_(1)
    f = anyshape.compile(fn, layout="any", backend=backend)
    room = torch.zeros(4, 11)
    for x in (torch.zeros(4, 3), torch.zeros(3, 4).t(), room[:, 1:7:2]):
        assert torch.equal(f(x), x) and torch.equal(x, torch.ones_like(x))
    assert room.sum() == 12 and len(f.programs) == 1


def test_a_reshape_that_is_given_back_is_a_view_where_eager_has_one() -> None:
    fn = lambda x: x.reshape(-1)
    f = anyshape.compile(fn, layout="any", backend="aot_eager")
    for x in (torch.randn(3, 4), torch.randn(4, 3).t(), torch.randn(3, 9)[:, ::2], torch.randn(7, 9)[:, 2:3]):
        ours, theirs = f(x), fn(x)
        torch.testing.assert_close(ours, theirs)
        assert (ours.data_ptr() == x.data_ptr()) == (theirs.data_ptr() == x.data_ptr())


def test_gradients_in_any_layout() -> None:
    fn = lambda x: (x.exp() @ x.t()).sum(1)
    f = anyshape.compile(fn, layout="any", backend="aot_eager")
    for x in five(4, 3):
        a, b = x.detach().requires_grad_(), x.detach().requires_grad_()
        f(a).sum().backward()
        fn(b).sum().backward()
        torch.testing.assert_close(a.grad, b.grad)
    assert len(f.programs) == 1


@pytest.mark.parametrize("words", [{}, {"layout": "any"}, {"semantics": "oblivious"}])
def test_storage_offsets_never_recompile(words: dict[str, str]) -> None:
    fn = lambda x: x[1:] * 2
    f = anyshape.compile(fn, backend="aot_eager", **words)
    for x in (torch.randn(10)[3:], torch.randn(7), torch.randn(20)[5:], torch.randn(2, 20)[1], torch.randn(8)):
        torch.testing.assert_close(f(x), fn(x))
    assert len(f.programs) == 1


def test_an_offset_that_came_later_is_seen_in_views() -> None:
    fn = lambda x: x.t()[1:]
    f = anyshape.compile(fn, backend="aot_eager")
    for x in (torch.randn(4, 6), torch.randn(31)[7:].view(4, 6)):
        assert torch.equal(f(x), fn(x)) and f(x).data_ptr() == fn(x).data_ptr()


@pytest.mark.parametrize("layout", ["contiguous", {"x": "contiguous"}])
def test_contiguous_inputs_are_made_and_counted(layout: str | dict[str, str]) -> None:
    fn = lambda x: x.mul_(2)
    f = anyshape.compile(fn, shapes={"x": "n m"}, layout=layout, backend="aot_eager")
    given = [torch.ones(3, 4), torch.ones(4, 3).t(), torch.ones(3, 9)[:, ::2]]
    for x in given:
        assert torch.equal(f(x), torch.full_like(x, 2)) and torch.equal(x, torch.full_like(x, 2))
    assert len(f.programs) == 1 and sum(f.copies.values()) == 2


def test_contiguous_reaches_into_containers() -> None:
    fn = lambda batch: batch["x"].sum(0) + batch["y"][0]
    f = anyshape.compile(fn, layout="contiguous", backend="eager")
    batch = {"x": torch.randn(3, 4).t(), "y": [torch.randn(3)]}
    torch.testing.assert_close(f(batch), fn(batch))
    assert sum(f.copies.values()) == 1


def test_dense_has_a_program_for_each_permutation_and_refuses_gaps() -> None:
    fn = lambda x: x + 1
    f = anyshape.compile(fn, shapes={"x": "a b c"}, layout="dense", backend="aot_eager")
    for x in (torch.randn(2, 3, 4), torch.randn(5, 6, 7), torch.randn(3, 2, 4).permute(1, 0, 2)):
        torch.testing.assert_close(f(x), fn(x))
    assert len(f.programs) == 2
    with pytest.raises(anyshape.InvariantError, match="x has gaps, and dense is declared") as caught:
        f(torch.randn(2, 3, 9)[..., ::2])
    assert caught.value.code == "AS022"


def test_example_is_the_layout_first_seen() -> None:
    fn = lambda x: x + 1
    f = anyshape.compile(fn, layout={"x": "example"}, backend="aot_eager")
    image = lambda n: torch.randn(n, 3, 4, 4).to(memory_format=torch.channels_last)
    for n in (2, 5, 1):
        torch.testing.assert_close(f(image(n)), fn(image(n)) * 0 + f(image(n)), rtol=1e9, atol=1e9)
        assert f(image(n)).is_contiguous(memory_format=torch.channels_last)
    with pytest.raises(anyshape.InvariantError, match="x is not laid out as first seen") as caught:
        f(torch.randn(2, 3, 4, 4))
    assert caught.value.code == "AS022" and len(f.programs) == 1


@pytest.mark.parametrize("words", [{}, {"shapes": {"x": "n m", "w": "m k"}, "hints": {"n": 512}}, {"layout": "any"}])
def test_what_is_saved_for_the_backward_has_strides_of_any_width(words: dict[str, object]) -> None:
    """The strides of a saved activation follow its sizes, not those of the first call or of a hint."""
    fn = lambda x, w: F.gelu(x @ w).sum(1)
    f = anyshape.compile(fn, **words)
    for n, k in ((4, 6), (7, 9), (50, 8)):
        x, w = torch.randn(n, 3, requires_grad=True), torch.randn(3, k, requires_grad=True)
        ours = torch.autograd.grad(f(x, w).sum(), (x, w))
        torch.testing.assert_close(ours, torch.autograd.grad(fn(x, w).sum(), (x, w)), rtol=1e-4, atol=1e-4)
    assert len(f.programs) == 1


@pytest.mark.parametrize("last_first", [False, True])
def test_an_image_of_one_channel_is_channels_last_if_its_strides_say_so(last_first: bool) -> None:
    """They address nothing, but eager looks at them: what a convolution makes of the image lies as they say."""
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 2, 3)).eval()
    f = anyshape.compile(net, specialize="never")
    with torch.no_grad(), expect_programs(2):
        for last in (last_first, not last_first):
            for n in (3, 1, 2):
                image = torch.randn(n, 1, 8, 9)
                image = image.to(memory_format=torch.channels_last) if last else image
                assert difference(net, f, (image,), rtol=1e-4, atol=1e-4) is None, (last, n)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("lengths", [(1, 3), (3, 1)])
@pytest.mark.parametrize("batch", [(2,), ()], ids=["batch", "alone"])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: F.conv1d(x, torch.ones(2, x.shape[-2], 2), padding=1),
        lambda x: F.conv_transpose1d(x, torch.ones(x.shape[-2], 2, 2)),
    ],
    ids=["conv", "transposed conv"],
)
def test_a_signal_of_length_one_is_a_transposed_one_if_its_strides_say_so(
    fn: Callable[[torch.Tensor], torch.Tensor], batch: tuple[int, ...], lengths: tuple[int, ...], backend: str
) -> None:
    f = anyshape.compile(fn, backend=backend, specialize="never")
    for n in lengths:
        for signal in (torch.randn(*batch, n, 5).transpose(-1, -2), torch.randn(*batch, 5, n)):
            assert difference(fn, f, (signal,), rtol=1e-4, atol=1e-4) is None, (n, signal.stride())


@pytest.mark.parametrize("widths", [(3, 1, 7), (1, 3, 7)])
def test_a_transposed_matrix_of_one_column_is_the_same_program(widths: tuple[int, ...]) -> None:
    """However that column lies: as one of several would, or as in a contiguous matrix."""
    fn = lambda x, w: x @ w
    f = anyshape.compile(fn, backend="aot_eager")
    with expect_programs(1):
        for n in widths:
            w = torch.randn(n, 10).t()
            for other in (w, w.contiguous()) if n == 1 else (w,):
                assert difference(fn, f, (torch.randn(4, 10), other)) is None, (n, other.stride())


def _shaped_and_flat(x: torch.Tensor) -> object:
    return x.reshape(x.shape), x.ravel()


def _branch_after_a_view(x: torch.Tensor) -> object:
    y = x.reshape(x.shape)
    return y + 1 if x.is_contiguous() else y - 1


def _branch_on_a_slice(x: torch.Tensor) -> object:
    part = x[:, ::2]
    y = part.reshape(part.shape) * 1
    return y + 1 if part.is_contiguous() else y - 1


def _written_after_a_view(x: torch.Tensor) -> object:
    part = x.t()
    y = part.reshape(part.shape)
    z = part.contiguous()
    z.add_(1)
    return x, y, z


VECTORS = (lambda: torch.zeros(5)[1::2], lambda: torch.zeros(2), lambda: torch.zeros(1))
MATRICES = tuple(lambda n=n, m=m: torch.zeros(n, m) for n, m in ((3, 4), (1, 4), (4, 1), (1, 1), (3, 5), (2, 2)))
ASKED_BEFORE = {
    "flat": (_shaped_and_flat, VECTORS),
    "branch": (_branch_after_a_view, VECTORS),
    "branch on a slice": (_branch_on_a_slice, MATRICES),
    "written": (_written_after_a_view, MATRICES),
}


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(("fn", "makers"), ASKED_BEFORE.values(), ids=ASKED_BEFORE)
def test_a_question_that_another_call_has_asked(fn: Callable[..., object], makers: tuple, backwards: bool) -> None:
    """A tensor keeps the answers about its layout: who asks second gets them from there, and asks all the same."""
    f = anyshape.compile(fn, backend="aot_eager")
    for make in reversed(makers) if backwards else makers:
        assert difference(fn, f, (make(),)) is None
