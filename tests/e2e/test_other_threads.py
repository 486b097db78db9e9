"""Tracing in another thread while a capture runs: it sees torch as it is, and nothing of the capture's patches."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
import torch._dynamo.output_graph as output_graph
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import anyshape
from anyshape._torch import own_thread

OURS = str(pathlib.Path(anyshape.__file__).parent)


def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ((x @ y).reshape(-1)[1:].cumsum(0) + torch.arange(x.shape[0] * y.shape[1] - 1)).sort()[0]


def traced() -> Any:
    return make_fx(fn, tracing_mode="symbolic")(torch.randn(5, 4), torch.randn(4, 3)).code


def exported() -> Any:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return fn(x, y)

    shapes = {"x": {0: torch.export.Dim("n", min=3)}, "y": None}
    program = torch.export.export(Net(), (torch.randn(5, 4), torch.randn(4, 3)), dynamic_shapes=shapes, strict=False)
    return str(program.graph)


def faked() -> Any:
    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        x, y = mode.from_tensor(torch.randn(5, 4)), mode.from_tensor(torch.randn(4, 3))
        return tuple(fn(x, y).shape), str(torch.fft.rfft(x).shape), (x.shape[0] > 3, x.unbind(0)[0].shape[0])


def in_a_capture(act: Callable[[], Any]) -> Any:
    """What `act` gives in a thread that runs while another is in the middle of a capture."""
    found: list[Any] = []
    stock = output_graph.OutputGraph.call_user_compiler

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        def work() -> None:
            try:
                found.append(act())
            except BaseException as error:
                found.append(error)

        if not found:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        return stock(self, *args, **kwargs)

    with mock.patch.object(output_graph.OutputGraph, "call_user_compiler", watched):
        f = anyshape.compile(fn, backend="aot_eager")
        x, y = torch.randn(6, 4), torch.randn(4, 3)
        torch.testing.assert_close(f(x, y), fn(x, y))
    (result,) = found
    if isinstance(result, BaseException):
        raise result
    return result


def watched(act: Callable[[], Any]) -> tuple[Any, set[str]]:
    """What `act` gives, and which functions of ours ran for it."""
    import sys

    ran: set[str] = set()

    def profile(frame: Any, event: str, argument: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(OURS) and not name.endswith("own_thread.py"):
            ran.add(f"{name}:{frame.f_code.co_name}")

    sys.setprofile(profile)
    try:
        return act(), ran
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("act", [traced, exported, faked])
def test_another_thread_traces_as_ever(act: Callable[[], Any]) -> None:
    alone = act()
    beside, ran = in_a_capture(lambda: watched(act))
    assert beside == alone
    assert not ran, "a patch of the capture was seen"


def test_every_function_that_a_capture_patches_is_parted(monkeypatch: pytest.MonkeyPatch) -> None:
    """In another thread each of them is the one that was there before."""
    parted: list[tuple[Any, str, Any]] = []
    stock = own_thread._divide

    def divide(patch: Any, thread: int) -> None:
        stock(patch, thread)
        parted.append((patch.target, patch.attribute, patch.temp_original))

    monkeypatch.setattr(own_thread, "_divide", divide)

    def installed() -> list[str]:
        functions = [(t, n, o) for t, n, o in parted if hasattr(o, "__code__")]
        wrong = [f"{t.__name__}.{n}" for t, n, o in functions if vars(t)[n].__code__.co_filename != own_thread.__file__]
        assert len(functions) > 20
        return wrong

    assert in_a_capture(installed) == []


def test_a_patch_is_for_one_thread_and_is_undone() -> None:
    class Owner:
        def method(self) -> str:
            return "stock"

        value = 1

    before, enter = Owner.__dict__["method"], own_thread._PATCH.__enter__
    with own_thread.alone():
        first = mock.patch.object(Owner, "method", lambda self: "patched")
        first.__enter__()
        with mock.patch.object(Owner, "value", 2):
            assert Owner.value == 2
    assert own_thread._PATCH.__enter__ is enter
    inner = Owner.method
    second = mock.patch.object(Owner, "method", lambda self: "twice " + inner(self))  # by others, and after
    second.__enter__()
    elsewhere: list[str] = []
    thread = threading.Thread(target=lambda: elsewhere.append(Owner().method()))
    thread.start()
    thread.join()
    assert Owner().method() == "twice patched" and elsewhere == ["twice stock"]
    second.__exit__(None, None, None)
    first.__exit__(None, None, None)
    assert Owner.__dict__["method"] is before and Owner.value == 1
