"""Calls that Dynamo passes over are compiled all the same, or counted with the reason."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import anyshape

pytestmark = pytest.mark.filterwarnings("ignore")


def inverted() -> Callable[..., Any]:
    """A function that stock torch marks to be skipped: it cannot say `~n` of a symbol. Each has its own code object."""
    source, name = "def f(x, n):\n    return x + (~n)\n", "<inverted>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    scope: dict[str, Any] = {}
    exec(compile(source, name, "exec"), scope)
    return scope["f"]  # type: ignore[no-any-return]


def marked() -> Callable[..., Any]:
    """A function with the mark, whatever made torch leave it there."""
    f = inverted()
    torch._dynamo.eval_frame.skip_code(f.__code__)
    return f


def calls(f: Any) -> int:
    return sum(p.calls for p in f.programs) + sum(f.fallbacks.values())


X = torch.ones(3)


def right(f: Callable[..., Any], numbers: tuple[int, ...]) -> bool:
    return all(torch.equal(f(X, n), X + ~n) for n in numbers)


def test_what_stock_has_marked_before_is_compiled_from_the_second_call_on() -> None:
    f = inverted()
    stock = torch.compile(f, backend="eager")
    assert right(stock, (3, 5, 7))
    made = anyshape.compile(f, backend="eager")
    assert right(made, (3, 5, 7))
    assert calls(made) == 3
    assert len(made.programs) == 1
    assert right(stock, (9, 11))  # and what stock does is as it was


def test_what_stock_marks_later_is_compiled_or_counted() -> None:
    f = inverted()
    made = anyshape.compile(f, backend="eager")
    assert right(made, (3, 5))
    assert right(torch.compile(f, backend="eager"), (3, 5, 7))
    assert right(made, (7, 8))
    assert torch.equal(made(torch.ones(2, 3), 3), torch.ones(2, 3) - 4)
    assert torch.equal(made(torch.ones(2, 4), 3), torch.ones(2, 4) - 4)
    assert calls(made) == 6
    assert sum(made.fallbacks.values()) <= 1


def test_a_mark_stays_where_it_is() -> None:
    f, seen = marked(), []
    made = anyshape.compile(f, backend="eager")
    assert right(made, (3, 5))
    assert len(made.programs) == 1
    stock = torch.compile(f, backend=lambda graph, inputs: seen.append(graph) or graph.forward)
    assert right(stock, (3,))
    assert not seen


def test_a_marked_method_is_compiled() -> None:
    class Holder:
        def add(self, x: torch.Tensor, n: int) -> torch.Tensor:
            return x + n

    torch._dynamo.eval_frame.skip_code(Holder.add.__code__)
    made = anyshape.compile(Holder().add, backend="eager")
    assert [made(X, n)[0].item() for n in (1, 2, 3)] == [2, 3, 4]
    assert len(made.programs) == 1
    assert calls(made) == 3


def test_a_full_graph_of_what_is_marked() -> None:
    made = anyshape.compile(marked(), backend="eager", fullgraph=True)
    with_errors = []
    for n in (3, 5):
        try:
            assert torch.equal(made(X, n), X + ~n)
        except RuntimeError as error:  # stock's own, for a graph that there is none of (2.13 on)
            with_errors.append(str(error))
    assert len(with_errors) <= 1
    assert len(made.programs) == 1


class _Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class _Marked(torch.nn.Module):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        return x + ~n


def eager_stance(f: Any) -> Any:
    with torch.compiler.set_stance("force_eager"):
        return f(X, 3)


def recompiling_stance(f: Any) -> Any:
    with torch.compiler.set_stance("eager_on_recompile"):
        return f(X, 3)


def mode(f: Any) -> Any:
    with _Mode():
        return f(X, 3)


def config(f: Any) -> Any:
    with torch._dynamo.config.patch(disable=True):
        return f(X, 3)


OUTSIDE = {eager_stance: "force_eager", recompiling_stance: "eager_on_recompile", mode: "mode", config: "disable"}


@pytest.mark.parametrize("module", [False, True])
@pytest.mark.parametrize("outside", OUTSIDE, ids=lambda f: f.__name__)
def test_what_keeps_dynamo_away_from_outside_is_counted(outside: Callable[..., Any], module: bool) -> None:
    made = anyshape.compile(_Marked() if module else inverted(), backend="eager")
    assert torch.equal(outside(made), X - 4)
    (reason,) = made.fallbacks
    assert OUTSIDE[outside] in reason
    assert calls(made) == 1
    assert right(made, (3, 5))  # afterwards a function is compiled; a module may keep a mark, in stock torch too
    assert len(made.programs) == 1 or module
    assert calls(made) == 3


def test_a_marked_module_is_counted() -> None:
    class Marked(torch.nn.Module):
        def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
            return x + ~n

    torch._dynamo.eval_frame.skip_code(Marked.forward.__code__)
    made = anyshape.compile(Marked(), backend="eager")
    assert right(made, (3, 5))
    assert calls(made) == 2
    assert all("Marked" in reason for reason in made.fallbacks if not made.programs)


def numbers(x: torch.Tensor, n: int) -> Iterator[torch.Tensor]:
    yield x + ~n


@pytest.mark.parametrize(
    "make",
    [
        lambda: anyshape.compile(inverted(), backend="eager", disable=True),
        lambda: anyshape.compile(torch.compiler.disable(inverted()), backend="eager"),
        lambda: anyshape.compile(torch.compiler.disable(inverted(), recursive=False), backend="eager"),
    ],
)
def test_what_is_disabled_is_counted(make: Callable[[], Any]) -> None:
    made = make()
    assert right(made, (3, 5))
    assert calls(made) == 2


def test_a_generator_is_counted() -> None:
    made = anyshape.compile(numbers, backend="eager")
    for n in (3, 5):
        assert torch.equal(next(iter(made(X, n))), X + ~n)
    assert calls(made) >= 2


def test_a_builtin_is_compiled_or_counted() -> None:
    made = anyshape.compile(torch.sin, backend="eager")
    assert torch.equal(made(X), X.sin())
    assert calls(made) == 1
