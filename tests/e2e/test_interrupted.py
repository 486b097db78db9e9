"""Interrupted captures: what the user raises arrives, torch is as it was, and the next call is right."""

from __future__ import annotations

import contextlib
import pathlib
import random
import signal
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo.config as dynamo_config
import torch._dynamo.convert_frame as convert_frame
import torch._dynamo.guards as guards
import torch._dynamo.output_graph as output_graph
import torch._subclasses.fake_tensor as fake_tensor
import torch._subclasses.functional_tensor as functional_tensor

import anyshape
from anyshape._torch.fake_runs import concrete

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="signals are those of POSIX")


class Deadline(Exception):
    pass


def program(number: int) -> Callable[..., torch.Tensor]:
    """A function nobody has captured before."""
    scope: dict[str, Any] = {"torch": torch}
    text = f"""
def fn(x, y):
    z = x @ y
    if x.shape[0] > 8:
        z = z * 2
    return z.softmax(-1).reshape(-1).sum() + z.relu().cumsum(0)[-1:] + {number}
"""
    exec(text, scope)
    return scope["fn"]  # type: ignore[no-any-return]


def inputs(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(n, 4), torch.randn(4, 5)


OURS = str(pathlib.Path(anyshape.__file__).parent)


def ours() -> set[tuple[str, str]]:
    """Names in modules and classes of torch that lead to functions of ours: what a patch could have been left in."""
    found: set[tuple[str, str]] = set()

    def look(name: str, key: str, value: Any) -> None:
        function = value.__func__ if type(value) in (staticmethod, classmethod) else value
        if type(function) is types.FunctionType and function.__code__.co_filename.startswith(OURS):
            found.add((name, key))

    for name, module in list(sys.modules.items()):
        if not name.startswith("torch.") or not isinstance(module, types.ModuleType):
            continue
        for key, value in list(vars(module).items()):
            look(name, key, value)
            if issubclass(type(value), type):  # without asking an object for its class: one of torch's warns then
                for inner, attribute in list(vars(value).items()):
                    look(f"{name}.{key}", inner, attribute)
    return found


def settings() -> dict[str, Any]:
    return {k: dynamo_config.__getattr__(k) for k in ("recompile_limit", "specialize_int", "allow_empty_graphs")}


@contextlib.contextmanager
def handler(raised: Callable[[], BaseException], number: int) -> Iterator[None]:
    def handle(*_: Any) -> None:
        raise raised()

    before = signal.signal(number, handle)
    try:
        yield
        assert signal.getsignal(number) is handle
    finally:
        signal.signal(number, before)


ERRORS = (Deadline, KeyboardInterrupt, MemoryError, RecursionError, SystemExit)


def interrupt(moments: int, seed: int) -> int:
    """Interrupt the first call of that many functions at random; how many interrupts came before it was over."""
    f = anyshape.compile(program(0), backend="aot_eager")
    f(*inputs(6))
    before, rng, arrived, lost = (ours(), settings()), random.Random(seed), 0, 0
    for i in range(1, moments + 1):
        kind, fn = ERRORS[i % len(ERRORS)], program(i)
        f = anyshape.compile(fn, backend="aot_eager")
        x, y = inputs(6)
        with handler(kind, signal.SIGALRM):
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0005, 0.15))
                f(x, y)
                left = signal.setitimer(signal.ITIMER_REAL, 0)[0]
                # Between the captures Python drops what is raised in callbacks of weak references, torch's among them.
                lost += left == 0
            except ERRORS as error:
                assert type(error) is kind, repr(error)
                arrived += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        for n in (6, 1):
            x, y = inputs(n)
            torch.testing.assert_close(f(x, y), fn(x, y))
        assert not f.fallbacks and len(f.programs) == 1
    assert (ours(), settings()) == before
    assert lost <= moments // 5
    return arrived


@pytest.mark.slow  # which moments they are depends on the clock
def test_two_hundred_deadlines_arrive() -> None:
    assert interrupt(200, seed=1) > 100


STAGES: dict[str, tuple[Any, str]] = {
    "a frame is converted": (convert_frame, "_compile"),
    "a graph is handed over": (output_graph.OutputGraph, "call_user_compiler"),
    "a fake tensor is asked": (fake_tensor.FakeTensorMode, "dispatch"),
    "a graph is made functional": (functional_tensor.FunctionalTensorMode, "__torch_dispatch__"),
    "guards are made": (guards.CheckFunctionManager, "__init__"),
    "a size is verified": (concrete, "call"),
}


@pytest.mark.parametrize("kind", [*ERRORS[:2], *(pytest.param(kind, marks=pytest.mark.slow) for kind in ERRORS[2:])])
@pytest.mark.parametrize("stage", list(STAGES))
def test_an_interrupt_arrives_at_each_stage(monkeypatch: pytest.MonkeyPatch, stage: str, kind: type) -> None:
    owner, name = STAGES[stage]
    if not hasattr(owner, name):
        pytest.skip("this torch does it elsewhere")
    fn = program(1000)
    f = anyshape.compile(fn, backend="aot_eager")
    if stage == "a size is verified":
        f(*inputs(6))
    x, y = inputs(1)
    stock = getattr(owner, name)
    acted = []

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        if not acted:
            acted.append(True)
            signal.raise_signal(signal.SIGUSR1)
        return stock(*args, **kwargs)

    with handler(kind, signal.SIGUSR1), monkeypatch.context() as patched:
        patched.setattr(owner, name, interrupted)
        with pytest.raises(kind):
            f(x, y)
    assert acted
    for n in (1, 6):
        x, y = inputs(n)
        torch.testing.assert_close(f(x, y), fn(x, y))
    assert not f.fallbacks and len(f.programs) == 1


def test_the_end_of_memory_is_no_reason_to_run_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    fn = program(2000)
    f = anyshape.compile(fn, backend="aot_eager")

    def fail(*_: Any, **__: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as patched, warnings.catch_warnings():
        patched.setattr(output_graph.OutputGraph, "call_user_compiler", fail)
        with pytest.raises(MemoryError):
            f(*inputs(3))
    assert not f.fallbacks
    x, y = inputs(3)
    torch.testing.assert_close(f(x, y), fn(x, y))
    assert len(f.programs) == 1
