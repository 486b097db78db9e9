"""Tracing in another thread while a capture runs: it sees torch as it is, and nothing of the capture's patches."""

from __future__ import annotations

import inspect
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
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import anyshape
from anyshape._torch.repairs import own_thread, registry

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


def test_every_function_that_a_capture_replaces_is_parted() -> None:
    """In another thread each of them is the one that was there before."""
    known = [one for one in registry.declared() if one.scope in ("capture", "compile") and one.apart]
    places = [p.found for one in known for p in one.held() if p.found is not None]
    stock = {where: vars(where[0])[where[1]] for where in places if _is_function(*where)}
    before = {id(function) for function in stock.values()}

    def installed() -> list[str]:
        now = {where: vars(where[0])[where[1]] for where in stock}
        replaced = {where: function for where, function in now.items() if id(function) not in before}
        assert len(replaced) > 50
        ours = {where: function for where, function in replaced.items() if inspect.isfunction(function)}
        return [f"{where[0].__name__}.{where[1]}" for where, f in ours.items() if f.__code__ not in PARTED]

    assert in_a_capture(installed) == []


PARTED = {own_thread.divided(lambda: 0, lambda: 0).__code__}


def _is_function(owner: Any, key: Any) -> bool:
    return not isinstance(owner, (dict, list)) and inspect.isfunction(vars(owner).get(key))


def test_others_may_replace_it_too_and_it_is_undone() -> None:
    before = vars(output_graph.OutputGraph)["call_user_compiler"], vars(SymNode)["sym_max"]
    with registry.only("capture_scope.sym_max"):
        inner = SymNode.sym_max
        seen: list[str] = []
        with mock.patch.object(SymNode, "sym_max", lambda self, other: (seen.append("others"), inner(self, other))[1]):
            assert torch.sym_max(ShapeEnv().create_unbacked_symint(), 1) is not None
        assert seen == ["others"] and SymNode.sym_max is inner
    assert (vars(output_graph.OutputGraph)["call_user_compiler"], vars(SymNode)["sym_max"]) == before
