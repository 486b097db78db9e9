"""Many threads call one compiled function at once."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import torch

import anyshape
from anyshape.testing import expect_programs

THREADS, CALLS, LARGEST = 8, 2000, 64


def _fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = x * 2 + y[:, None].sum(0)
    if x.shape[0] > 32:
        return z.sum(0)
    return z.cumsum(0)


def _in_threads(work: Callable[[int], None], threads: int = THREADS) -> list[BaseException]:
    """Run `work` in threads that begin together; what they raised."""
    barrier, errors = threading.Barrier(threads), []

    def run(number: int) -> None:
        barrier.wait()
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return errors


def _calls(number: int, count: int = CALLS) -> list[tuple[torch.Tensor, torch.Tensor]]:
    drawn = random.Random(number)
    pool = [torch.randn(n, 2) for n in range(LARGEST + 1)]
    return [(pool[drawn.randint(0, LARGEST)], pool[drawn.randint(0, LARGEST)][:, 0]) for _ in range(count)]


def test_eight_threads() -> None:
    def work(number: int) -> None:
        for x, y in _calls(number):
            torch.testing.assert_close(f(x, y), _fn(x, y), rtol=0, atol=0)

    f = anyshape.compile(_fn, backend="aot_eager")
    assert _in_threads(work) == []
    assert f.fallbacks == {}
    assert len(f.programs) == 2


def test_as_many_programs_as_one_thread_makes() -> None:
    alone = anyshape.compile(_fn, backend="aot_eager")
    for x, y in _calls(0, 200):
        alone(x, y)
    want = len(alone.programs)
    torch._dynamo.reset()
    f = anyshape.compile(_fn, backend="aot_eager")
    assert _in_threads(lambda number: [f(x, y) for x, y in _calls(0, 200)] and None) == []
    assert len(f.programs) == want


def test_each_thread_trains() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh())

    def work(number: int) -> None:
        drawn = random.Random(number)
        for _ in range(50):
            ours = torch.randn(drawn.randint(0, 20), 3, requires_grad=True)
            eager = ours.detach().clone().requires_grad_()
            (mine,) = torch.autograd.grad(f(ours).sum(), ours)
            (theirs,) = torch.autograd.grad(model(eager).sum(), eager)
            torch.testing.assert_close(mine, theirs)

    f = anyshape.compile(model, backend="aot_eager")
    assert _in_threads(work) == []
    assert len(f.programs) == 1


def test_functions_compiled_in_threads_of_their_own() -> None:
    results: dict[int, Any] = {}

    def work(number: int) -> None:
        fn = lambda x: x * number + x.shape[0]
        f = anyshape.compile(fn, backend="aot_eager")
        for n in (4, 1, 0, 7):
            x = torch.randn(n, 2)
            torch.testing.assert_close(f(x), fn(x))
        results[number] = f

    with expect_programs(4):
        assert _in_threads(work, 4) == []
    assert [len(results[n].programs) for n in range(4)] == [1] * 4


def test_stock_and_anyshape_at_once() -> None:
    stock = torch.compile(lambda x: x.sum(0) + 1, backend="aot_eager", dynamic=True)
    f = anyshape.compile(lambda x: x.sum(0) * 2, backend="aot_eager")

    def work(number: int) -> None:
        for n in (5, 3, 1, 0, 7, 2):
            x = torch.randn(n, 2)
            if number % 2:
                torch.testing.assert_close(f(x), x.sum(0) * 2)
            else:
                torch.testing.assert_close(stock(x), x.sum(0) + 1)

    assert _in_threads(work, 4) == []
