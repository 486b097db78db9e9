"""A compiled module that eight threads call, while it is hooked, copied, saved, loaded and trained in turns."""

from __future__ import annotations

import copy
import io
import random
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import anyshape

SIZES = (3, 8, 1, 0, 2, 5, 7, 4)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last, self.scale = nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2), 1.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(self.first(x)).relu()) * self.scale


def hundred_more(module: nn.Module, args: Any, out: torch.Tensor) -> torch.Tensor:
    return out + 100


def twice(module: nn.Module, args: Any) -> Any:
    return (args[0] * 2,)


def halve(module: nn.Module, grad_in: Any, grad_out: Any) -> Any:
    return tuple(None if g is None else g / 2 for g in grad_in)


class Pair:
    """What is compiled and what is not; whatever is done is done to both."""

    def __init__(self) -> None:
        self.eager = Net()
        self.compiled = anyshape.compile(copy.deepcopy(self.eager), backend="aot_eager")
        self.fallbacks: dict[str, int] = {}

    def both(self, do: Callable[[Any], object]) -> None:
        do(self.compiled)
        do(self.eager)

    def replaced(self, copied: Any) -> None:
        self.fallbacks.update(self.compiled.fallbacks)
        self.compiled = copied


def copied(module: Any) -> Any:
    return copy.deepcopy(module)


def saved(module: Any) -> Any:
    file = io.BytesIO()
    torch.save(module, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=False)


def trained(module: Any) -> None:
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            parameter.add_(0.25 * (i + 1))


def state_loaded(module: Any) -> None:
    module.load_state_dict({k: v * 0.5 for k, v in module.state_dict().items()})


def scaled(module: Any) -> None:
    module.scale = module.scale + 0.5


# Hooks stay with copies, and their handles do not: they are taken off as they lie there.
TURNS: dict[str, Callable[[Pair], object]] = {
    "a hook is added": lambda p: p.both(lambda m: m.norm.register_forward_hook(hundred_more)),
    "a hook of the whole is added": lambda p: p.both(lambda m: m.register_forward_pre_hook(twice)),
    "a hook of gradients is added": lambda p: p.both(lambda m: m.last.register_full_backward_hook(halve)),
    "a hook is removed": lambda p: p.both(lambda m: m.norm._forward_hooks.clear()),
    "a hook of the whole is removed": lambda p: p.both(lambda m: m._forward_pre_hooks.clear()),
    "a hook of gradients is removed": lambda p: p.both(lambda m: m.last._backward_hooks.clear()),
    "a copy takes its place": lambda p: p.replaced(copied(p.compiled)),
    "what was saved takes its place": lambda p: p.replaced(saved(p.compiled)),
    "it is trained": lambda p: p.both(trained),
    "a state is loaded": lambda p: p.both(state_loaded),
    "a float of it changes": lambda p: p.both(scaled),
}


def differences(pair: Pair, seed: int) -> list[str]:
    """Eight threads call, each with a size of its own, while the module is copied and saved."""
    wrong: list[str] = []

    def call(n: int) -> None:
        x = torch.randn(n, 3, generator=torch.Generator().manual_seed(seed + n)).requires_grad_()
        got, expected = [], []
        for module, results in ((pair.compiled, got), (pair.eager, expected)):
            out = module(x)
            results.extend([out, *torch.autograd.grad(out.sum(), [x, module.first.weight])])
        for a, b in zip(got, expected, strict=True):
            if a.shape != b.shape or not torch.allclose(a, b, atol=1e-5):
                wrong.append(f"size {n}: {a} is not {b}")

    def watched(n: int) -> None:
        try:
            call(n)
        except BaseException as error:
            wrong.append(f"size {n}: {error!r}")

    threads = [threading.Thread(target=watched, args=(n,)) for n in SIZES]
    for thread in threads:
        thread.start()
    copied(pair.compiled)
    saved(pair.compiled)
    for thread in threads:
        thread.join()
    return wrong


def test_eight_threads_and_turns() -> None:
    pair, names = Pair(), list(TURNS)
    random.Random(25).shuffle(names)
    assert differences(pair, 0) == []
    for seed, name in enumerate(names, 1):
        TURNS[name](pair)
        assert differences(pair, 100 * seed) == [], (name, names)
    assert {**pair.fallbacks, **pair.compiled.fallbacks} == {}
