"""Buckets of real programs: right at every boundary, and for what they were not made for."""

from __future__ import annotations

import copy
import dataclasses
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._inductor.codegen.triton import TritonKernel
from torch._inductor.sizevars import SizeVarAllocator
from torch._inductor.virtualized import V

import anyshape
from anyshape._torch.capture import capture_scope
from anyshape._torch.compile import common_sizes
from anyshape.testing import difference, expect_programs
from anyshape.variants import hot_buckets


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket is hot at its third call, and its code stays however fast it is."""
    soon = hot_buckets.BucketPolicy(samples=1, calls=2, slower=float("inf"), sizes=9, most_share=float("inf"))
    monkeypatch.setattr(hot_buckets, "BucketPolicy", lambda: soon)


@pytest.fixture
def _light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without kernels: what is compiled and who is served is the same."""
    monkeypatch.setattr(capture_scope, "generates_code", lambda backend: True)


light = pytest.mark.usefixtures("_light")


def heated(fn: Callable[..., Any], calls: Iterator[tuple[Any, ...]], **words: Any) -> Any:
    """Compiled, with code for all buckets that the calls are in; each call is made until that serves it."""
    f = anyshape.compile(fn, specialize="buckets", **words)
    for args in calls:
        for _ in range(6):
            assert difference(fn, f, copy.deepcopy(args)) is None
            assert f.wait(120)
    return f


def served(f: Any) -> int:
    return sum(v.calls for v in f.variants)


def rows(*sizes: int, first: int = 3) -> Iterator[tuple[Tensor]]:
    return ((torch.randn(first, n),) for n in sizes)


def normalized(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.softmax(-1) * 2 + x.mean(-1, keepdim=True), F.layer_norm(x, x.shape[-1:])


@light
def test_at_and_beside_every_boundary() -> None:
    with expect_programs(1):
        f = heated(normalized, rows(20, 48, 49, 600, 640, 1500, 1504), backend="aot_eager")
        assert len(f.variants) == 7 and not f.programs[0].dropped
        edges = (1, 2, 15, 16, 17, 31, 32, 33, 47, 49, 63, 65, 511, 512, 513, 527, 528, 529, 1023, 1024, 1025)
        for n in (*edges, 2047, 2048, 2049):
            before = served(f)
            assert difference(normalized, f, (torch.randn(3, n),)) is None, n
            key = f._engine.programs[0].hot_sizes._plan.choose((3, n, n, 1))
            known = f._engine.programs[0].hot_sizes._buckets.get(key)
            assert served(f) - before == (known is not None and known.state == "ready"), n
        for first, n in ((0, 600), (1, 600), (2, 600), (64, 600), (65, 600), (600, 0), (0, 0), (1, 1), (600, 3)):
            assert difference(normalized, f, (torch.randn(first, n),)) is None, (first, n)
    texts = [v.text for v in f.variants]
    assert "2 <= x.shape[0] <= 64 and 512 < x.shape[1] <= 1024, x.shape[1] % 16 == 0" in texts
    assert "512 < x.shape[1] <= 1024, x.shape[1] % 16 == 0 (" in str(anyshape.explain(f))


@light
def test_a_size_never_seen_is_served_at_its_first_call() -> None:
    f = heated(normalized, rows(600, 601, 602), backend="aot_eager")
    before = served(f)
    for n in range(603, 623):
        f(torch.randn(3, n))
    assert served(f) - before == 19  # 608 is a multiple of 16
    assert len(f.variants) == 1


@light
def test_training() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 2))
    eager = copy.deepcopy(model)
    f = anyshape.compile(model, specialize="buckets", backend="aot_eager")
    with expect_programs(1):
        for n in [40, 41, 42, 43, 44, 45, 46, 1, 1, 1, 1, 1, 1, 100, 200, 300, 400, 500, 600, 0, 2, 64, 65, 3]:
            x = torch.randn(n, 6)
            for call in (f, eager):
                call.zero_grad()
                call(x).square().sum().backward()
            for mine, theirs in zip(model.parameters(), eager.parameters(), strict=True):
                torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-4)
            assert f.wait(120)
    assert served(f) >= 3 and not f.programs[0].dropped


@light
def test_inputs_that_are_written_and_buffers_of_the_caller() -> None:
    def fn(x: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
        x.add_(x.sum(-1, keepdim=True))
        return torch.mul(x, 2, out=out), x[:, 1:]

    def calls(*sizes: int) -> Iterator[tuple[Any, ...]]:
        return ((torch.randn(3, n), torch.empty(3, n)) for n in sizes)

    f = heated(fn, calls(40, 48), backend="aot_eager")
    before = served(f)
    for args in calls(33, 34, 64, 63, 65, 1, 0, 32):
        assert difference(fn, f, args) is None
    assert served(f) - before == 4 and len(f.variants) == 2


@light
def test_views_and_other_layouts() -> None:
    fn = lambda x: (x.softmax(-1).t(), x.reshape(-1) + 1, x.sum(0))
    x = torch.randn(200, 200)
    f = heated(fn, iter([(x[:3, :100],), (x[:100, :3].t(),)]), backend="aot_eager")
    assert f.variants
    layouts = (
        x[:3, :99],
        x[:3, 1:100],
        x[:3, :192:2],
        x[:99, :3].t(),
        x[:3, :1].expand(3, 99),
        x[:1, :99].expand(3, 99),
        x[::50, :99],
        torch.randn(3, 99),
        torch.randn(99, 3).t(),
        x.as_strided((3, 99), (5, 1)),
    )
    for _ in range(3):
        for other in layouts:
            assert difference(fn, f, (other,)) is None, (other.shape, other.stride())
            assert f.wait(120)


@light
def test_several_sizes() -> None:
    def fn(x: Tensor, y: Tensor, k: int) -> tuple[Tensor, Tensor, int]:
        return x @ y, torch.cat([x.flatten(), y.flatten()]) * k, x.shape[0] * k

    def call(m: int, n: int, p: int, k: int) -> tuple[Any, ...]:
        return torch.randn(m, n), torch.randn(n, p), k

    with expect_programs(1):
        f = heated(fn, iter([call(70, 40, 50, 3), call(5, 48, 64, 7)]), backend="aot_eager")
        assert len(f.variants) == 2
        for sizes in [
            (70, 40, 50, 0),
            (70, 40, 50, 1),
            (70, 40, 50, -2),
            (40, 40, 40, 2),
            (5, 64, 64, 7),
            (5, 5, 5, 5),
        ]:
            assert difference(fn, f, call(*sizes)) is None, sizes
        for sizes in [(1, 40, 50, 3), (70, 1, 50, 3), (70, 40, 1, 3), (0, 40, 50, 3), (70, 0, 50, 3), (70, 40, 0, 3)]:
            assert difference(fn, f, call(*sizes)) is None, sizes


@light
def test_sizes_that_may_be_equal_or_stretched() -> None:
    fn = lambda x, y: (x + y).logsumexp(-1)
    pair = lambda m, n: (torch.randn(4, m), torch.randn(4, n))
    f = heated(fn, iter([pair(40, 40), pair(41, 41), pair(48, 48)]), backend="aot_eager")
    for m, n in [(50, 50), (1, 50), (50, 1), (1, 1), (64, 64), (64, 1), (0, 0), (0, 1), (50, 51)]:
        for _ in range(2):
            args = pair(m, n)
            assert difference(fn, f, args) is None, (m, n)


@light
def test_branches_on_sizes() -> None:
    def fn(x: Tensor) -> Tensor:
        return x.softmax(-1) if x.shape[1] > 600 else x.log_softmax(-1) if x.shape[1] % 2 else x.cumsum(-1)

    f = heated(fn, rows(598, 599, 602, 601), backend="aot_eager")
    for n in (597, 600, 601, 603, 604, 599, 1023, 1024, 1025, 514, 513, 512):
        for _ in range(3):
            assert difference(fn, f, (torch.randn(3, n),)) is None, n
            assert f.wait(120)


@light
def test_sizes_out_of_the_data() -> None:
    def fn(x: Tensor) -> tuple[Tensor, int]:
        return x[x > 0] * 2, (x > 0).nonzero().shape[0] + x.shape[0]

    f = heated(fn, ((torch.randn(n),) for n in (40, 41, 48)), backend="aot_eager")
    for x in (torch.randn(50), -torch.rand(50), torch.rand(50), torch.randn(0), torch.randn(1), torch.randn(64)):
        assert difference(fn, f, (x,)) is None


@light
def test_threads() -> None:
    f = anyshape.compile(normalized, specialize="buckets", backend="aot_eager")
    f(torch.randn(3, 5))
    wrong: list[Any] = []

    def work(start: int) -> None:
        for n in range(start, start + 60, 3):
            x = torch.randn(3, n)
            try:
                torch.testing.assert_close(f(x), normalized(x))
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(start,)) for start in (33, 34, 35, 60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert f.wait(120) and not wrong


@light
def test_a_bucket_that_cannot_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **words: Any) -> Any:
        raise RuntimeError("out of registers")

    monkeypatch.setattr(common_sizes, "compiled", fails)
    f = heated(normalized, rows(40, 41, 42), backend="aot_eager")
    assert difference(normalized, f, (torch.randn(3, 43),)) is None
    assert f.variants == ()
    ((reason,), *_) = [p.dropped for p in f.programs]
    assert "32 < x.shape[1] <= 64, x.shape[1] % 16 != 0 could not be compiled: RuntimeError" in reason
    assert "out of registers" in str(anyshape.explain(f))


@light
def test_what_inductor_knows_of_a_bucket() -> None:
    """A range of the symbol itself is what a persistent reduction takes, and a divisor what wide loads take."""
    told: list[tuple[Any, ...]] = []

    def persistent(expr: Any) -> Any:
        try:
            return TritonKernel._get_persistent_RBLOCK(expr)
        except ValueError:  # there is no bound
            return None

    def backend(graph: Any, inputs: Any) -> Any:
        (size,) = (t.shape[1] for t in inputs if isinstance(t, Tensor))
        if isinstance(size, int):  # the general program: its sizes are told apart elsewhere
            return graph.forward
        sizes = SizeVarAllocator(size.node.shape_env)
        expr = size.node.expr
        with V.set_graph_handler(types.SimpleNamespace(sizevars=sizes)):
            block = persistent(expr)
        longer = sizes.statically_known_gt(expr, 512), sizes.statically_known_gt(expr, 513)
        told.append((block, *longer, sizes.statically_known_multiple_of(expr, 16), size.node.hint))
        return graph.forward

    heated(lambda x: x.softmax(-1), rows(601, 640, 300_000), backend=backend)
    assert told == [
        (1024, True, False, False, 601),
        (1024, True, False, True, 640),
        (None, True, True, True, 300_000),
    ]


@light
def test_neighbors_stay_within_what_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    soon = dataclasses.replace(hot_buckets.BucketPolicy(), sizes=1)
    monkeypatch.setattr(hot_buckets, "BucketPolicy", lambda: soon)
    f = heated(
        lambda x: x.softmax(-1),
        rows(601, 601),
        backend="aot_eager",
        shapes={"x": "_ n"},
        where=["n <= 1100"],
    )
    made = [b for b in f._engine.programs[0].hot_sizes._buckets.values() if b.code is not None]
    assert [b.code.text for b in made] == [
        "2 <= x.shape[0] <= 64 and 512 < x.shape[1] <= 1024, x.shape[1] % 16 != 0",
        "2 <= x.shape[0] <= 64 and 256 < x.shape[1] <= 512, x.shape[1] % 16 != 0",
    ]


def test_with_kernels() -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        return F.gelu(x).softmax(-1), x.sum(-1)

    with expect_programs(1):
        f = heated(fn, rows(640, 601))
        assert len(f.variants) == 2 and not f.programs[0].dropped
        for n in (513, 520, 528, 608, 1008, 1023, 1024, 1025, 512, 1, 0):
            assert difference(fn, f, (torch.randn(3, n),)) is None, n
    assert served(f) >= 8


def test_training_with_kernels() -> None:
    weight = torch.randn(1, requires_grad=True)

    def fn(x: Tensor) -> Tensor:
        return (F.softmax(x * weight, -1) * x).sum(0)

    f = anyshape.compile(fn, specialize="buckets")
    for n in (600, 601, 602, 603, 604, 605, 700, 999, 1023, 513, 640, 512, 1):
        x = torch.randn(4, n, requires_grad=True)
        seed = torch.randn(n)
        mine = torch.autograd.grad(f(x), (x, weight), seed)
        theirs = torch.autograd.grad(fn(x), (x, weight), seed)
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
        assert f.wait(120)
    assert served(f) >= 5


def test_a_file_holds_exact_sizes() -> None:
    with pytest.raises(anyshape.ArtifactError, match="buckets are made of the calls that come"):
        anyshape.precompile(normalized, (torch.randn(3, 5),), specialize="buckets")


def test_the_words() -> None:
    with pytest.raises(anyshape.DeclarationError, match='"hot", "buckets", "never"'):
        anyshape.compile(normalized, specialize="bucket")
    assert anyshape.compile(normalized, specialize="buckets")._engine.entry_check is None  # nothing is checked for it
