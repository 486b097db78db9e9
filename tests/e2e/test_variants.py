"""Variants of real programs, from the graph that was captured for all sizes."""

from __future__ import annotations

import copy
import dataclasses
import os
import subprocess
import sys
import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._inductor.select_algorithm import AlgorithmSelectorCache
from torch._inductor.utils import fresh_cache
from torch.fx.experimental.proxy_tensor import make_fx

import anyshape
from anyshape._torch.compile import exact_sizes
from anyshape.testing import difference, expect_programs
from anyshape.variants import hot_sizes


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A size is hot at its third call, and a variant stays however fast it is."""
    soon = hot_sizes.Policy(samples=2, share=0.0, slower=float("inf"))
    monkeypatch.setattr(hot_sizes, "Policy", lambda: soon)


def normalised(x: Tensor, scale: int) -> Tensor:
    return F.softmax(x, -1) * scale + x.mean(0)


def heat(f: Any, *args: Any) -> None:
    for _ in range(4):
        f(*args)
    assert f.wait(120)


def test_a_hot_size_gets_its_own_code_without_a_second_capture() -> None:
    f = anyshape.compile(normalised)
    with expect_programs(1):
        f(torch.randn(5, 7), 3)
        heat(f, torch.randn(8, 16), 2)
        for args in [(8, 16, 2), (8, 16, 3), (5, 7, 3), (1, 16, 2), (0, 16, 2), (8, 16, 2)]:
            assert difference(normalised, f, (torch.randn(*args[:2]), args[2])) is None
    assert [v.text for v in f.variants] == ["x.shape[0] == 8 and x.shape[1] == 16 and scale == 2"]
    assert f.variants[0].calls >= 2
    assert "variant" in str(anyshape.explain(f))


def test_the_code_of_a_variant_is_counted() -> None:
    f = anyshape.compile(normalised)
    with fresh_cache():
        heat(f, torch.randn(9, 31), 4)
    (variant,) = f.variants
    assert 1_000 < variant.code_bytes < 10_000_000


def train_alike(sizes: list[int], atol: float) -> Any:
    """A compiled model, after steps whose gradients were eager's."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 2))
    eager = copy.deepcopy(model)
    f = anyshape.compile(model)
    with expect_programs(1):
        for n in sizes:
            x = torch.randn(n, 6)
            for call in (f, eager):
                call.zero_grad()
                call(x).square().sum().backward()
            for mine, theirs in zip(model.parameters(), eager.parameters(), strict=True):
                torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=atol)
            assert f.wait(120)
    return f


def test_forward_and_backward() -> None:
    (variant,) = train_alike([4, 12, 12, 12, 12, 3, 12, 1, 12], atol=1e-5).variants
    assert variant.calls >= 2


def test_inputs_that_are_written() -> None:
    def fn(x: Tensor, out: Tensor) -> Tensor:
        x.add_(1)
        return torch.mul(x, 2, out=out)

    f = anyshape.compile(fn)
    for n in (5, 8, 8, 8, 8, 8, 3):
        assert difference(fn, f, (torch.randn(n), torch.empty(n))) is None
        assert f.wait(120)
    assert len(f.variants) == 1


@pytest.fixture
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three sizes may have code of their own."""
    few = dataclasses.replace(hot_sizes.Policy(), most=3)
    monkeypatch.setattr(hot_sizes, "Policy", lambda: few)


@pytest.mark.usefixtures("_few")
def test_many_hot_sizes_share_code_for_what_they_have_in_common() -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        return F.layer_norm(F.gelu(x), x.shape[-1:]), (x * 2).softmax(-1)

    f = anyshape.compile(fn)
    with expect_programs(1):
        f(torch.randn(3, 7))
        for n in (16, 32, 48, 128, 80, 96):
            heat(f, torch.randn(8, n))
        others = [(8, 112), (8, 64), (8, 33), (9, 64), (0, 64), (8, 1), (1, 1), (8, 128), (8, 256)]
        for rows, n in others:
            assert difference(fn, f, (torch.randn(rows, n),)) is None
    *own, shared = f.variants
    assert [v.text for v in own] == [f"x.shape[0] == 8 and x.shape[1] == {n}" for n in (16, 32, 48)]
    assert shared.text == "x.shape[0] == 8 and x.shape[1] <= 128 and x.shape[1] % 16 == 0"
    assert shared.calls >= 3


@pytest.mark.usefixtures("_few")
def test_shared_code_is_for_layouts_it_was_made_for() -> None:
    f = anyshape.compile(lambda x: x.softmax(-1), specialize="hot")
    for n in (16, 32, 48, 64):
        heat(f, torch.randn(8, n))
    known = f._engine.programs[0].hot_sizes
    (shared,), *_, key = known._shared, *known._sizes
    assert shared.code.admits(key) and not shared.code.admits((*key[:-2], key[-1], key[-2]))
    x = torch.randn(64, 8).t()
    for _ in range(6):
        torch.testing.assert_close(f(x), x.softmax(-1))
        assert f.wait(120)


@pytest.mark.usefixtures("_few")
def test_shared_code_forward_and_backward() -> None:
    sizes = [n for n in (16, 32, 48, 64, 80) for _ in range(4)]
    f = train_alike([*sizes, 24, 40, 64, 1, 0], atol=1e-4)
    assert any("%" in v.text and v.calls for v in f.variants)


def test_a_graph_with_sizes_born_from_data() -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor, int]:
        hits = (x > 0).nonzero()
        return x.relu() @ x.mT, x[x > 0] * 2, hits.shape[0] + x.shape[0]

    f = anyshape.compile(fn)
    with expect_programs(1):
        for n in (5, 8, 1, 0):
            heat(f, torch.randn(n, 4))
            assert difference(fn, f, (torch.randn(n, 4),), rtol=1e-4, atol=1e-5) is None
            assert difference(fn, f, (-torch.rand(n, 4),), rtol=1e-4, atol=1e-5) is None  # none of them
    assert len(f.variants) == 4 and not f.programs[0].dropped


def test_never() -> None:
    f = anyshape.compile(normalised, specialize="never")
    heat(f, torch.randn(8, 16), 2)
    assert f.variants == ()


def test_clauses() -> None:
    fn = lambda x: F.softmax(x, -1).sum(0)
    f = anyshape.compile(fn, shapes={"x": "batch width"}, specialize=["batch == 1"])
    for n in (4, 1, 4, 1, 4, 4, 4, 1):
        assert difference(fn, f, (torch.randn(n, 5),)) is None
        assert f.wait(120)
    assert [v.text for v in f.variants] == ["x.shape[0] == 1 and x.shape[1] == 5"]


def test_declared_sizes_are_tuned_each_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned: list[str] = []
    stock = AlgorithmSelectorCache.__call__

    def choose(self: Any, name: Any, choices: Any, inputs: Any, layout: Any, *rest: Any, **words: Any) -> Any:
        tuned.append(str(layout.size[0]))
        return stock(self, name, choices, inputs, layout, *rest, **words)

    monkeypatch.setattr(AlgorithmSelectorCache, "__call__", choose)
    w = torch.randn(16, 16)
    fn = lambda x: (x @ w).relu()
    clauses = ["n == 8", "n == 32"]
    f = anyshape.compile(fn, mode="max-autotune-no-cudagraphs", shapes={"x": "n 16"}, specialize=clauses)
    with fresh_cache():  # code that is found there was tuned before
        for n in (3, 8, 32, 8, 32, 5):
            assert difference(fn, f, (torch.randn(n, 16),), rtol=1e-4, atol=1e-4) is None
            assert f.wait(120)
    assert tuned[1:] == ["8", "32"] and len(f.variants) == 2


def test_other_layouts_of_the_same_size() -> None:
    fn = lambda x: x.relu() + 1
    f = anyshape.compile(fn)
    heat(f, torch.randn(6, 4))
    for x in (torch.randn(4, 6).t(), torch.randn(6, 4), torch.randn(6, 8)[:, ::2]):
        assert difference(fn, f, (x,)) is None


def test_a_variant_that_cannot_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    from anyshape._torch.compile import exact_sizes

    def fails(*args: Any) -> Any:
        raise RuntimeError("out of registers")

    monkeypatch.setattr(exact_sizes.Master, "_compile", fails)
    f = anyshape.compile(normalised)
    heat(f, torch.randn(8, 16), 2)
    assert difference(normalised, f, (torch.randn(8, 16), 2)) is None
    assert f.variants == ()
    assert "out of registers" in str(anyshape.explain(f))


def test_other_compiled_functions_run_while_a_variant_is_traced() -> None:
    """torch 2.11 and 2.13 have one flag for all threads that says a graph is being traced."""
    tracing, go_on = threading.Event(), threading.Event()

    def traced(x: Tensor) -> Tensor:
        tracing.set()
        assert go_on.wait(60)
        return x + 1

    def work() -> None:
        with exact_sizes._untold_to_others():
            make_fx(traced)(torch.randn(3))

    stock, ours = torch.compile(lambda x: x * 2, backend="eager"), anyshape.compile(lambda x: x * 3, backend="eager")
    worker = threading.Thread(target=work)
    worker.start()
    try:
        assert tracing.wait(60)
        for n in (4, 5):
            x = torch.randn(n)
            torch.testing.assert_close(stock(x), x * 2)
            torch.testing.assert_close(ours(x), x * 3)
    finally:
        go_on.set()
        worker.join()


def test_a_process_that_ends_while_one_is_made() -> None:
    """A thread that is cut off in C++, from where compilers call Python, ends the process with an abort."""
    script = (
        "import atexit, time, torch, anyshape\n"
        "from torch.utils._python_dispatch import TorchDispatchMode\n"
        "from anyshape.variants.hot_sizes import WORKER\n"
        "class Mode(TorchDispatchMode):\n"
        "    def __torch_dispatch__(self, func, types, args=(), kwargs=None):\n"
        "        return func(*args, **(kwargs or {}))\n"
        "def job():\n"
        "    x = torch.randn(4)\n"
        "    with Mode():\n"
        "        while True:\n"
        "            try:\n"
        "                while True:\n"
        "                    x.add_(1)\n"
        "            except SystemExit:\n"
        "                told.append(1)\n"
        "                if len(told) > 2:\n"  # nor does a callback of a weak reference take notice
        "                    raise\n"
        "told = []\n"
        "atexit.register(lambda: WORKER.submit(later, later) or print(WORKER.wait([job, later], 60)))\n"  # comes last
        "later = lambda: None\n"
        "WORKER.submit(job, job)\n"
        "WORKER.submit(later, later)\n"
        "time.sleep(0.5)\n"
        "assert WORKER.busy\n"
    )
    path = os.pathsep.join(p for p in sys.path if p)
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "True"), ran.stderr
