"""Functions that `torch.func` transforms, inside of what is compiled."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, grad_and_value, vjp

import anyshape
from anyshape.testing import difference

BACKENDS = ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
WEIGHT = torch.linspace(-1, 1, 9).view(3, 3)
LAYER = nn.Linear(3, 3)


def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
    return functional_call(LAYER, parameters, (x,)).pow(2).mean()


CASES: dict[str, Callable[[Tensor], object]] = {
    "grad": lambda x: grad(lambda t: (t**2).sum())(x),
    "value": lambda x: grad_and_value(lambda t: (t @ WEIGHT).tanh().sum())(x),
    "vjp": lambda x: vjp(lambda t: t.sin() * x, x)[1](torch.ones_like(x)),
    "views": lambda x: grad(lambda t: (t.view(-1)[: t.shape[0] // 2 + 1] * t.mean()).sum())(x),
    "written": lambda x: grad(lambda t: (t.clone().mul_(2) ** 2).sum())(x),
    "mapped and written": lambda x: torch.vmap(lambda t: t.clone().add_(1))(x),
    "of parameters": lambda x: grad(loss)(dict(LAYER.named_parameters()), x),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("sizes", [(4, 7, 1, 0), (1, 0, 5), (0, 3, 1)])
@pytest.mark.parametrize("name", CASES)
def test_one_program_for_every_size(name: str, sizes: tuple[int, ...], backend: str) -> None:
    fn = CASES[name]
    f = anyshape.compile(fn, backend=backend)
    for n in sizes:
        assert difference(fn, f, (torch.randn(n, 3),), rtol=1e-4, atol=1e-5) is None
    assert not f.fallbacks
    assert len(f.programs) <= (1 if sizes[0] > 1 else 2), [p.behavior for p in f.programs]


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_of_each_sample(backend: str) -> None:
    fn = lambda x: torch.vmap(grad(loss), in_dims=(None, 0))(dict(LAYER.named_parameters()), x)
    f = anyshape.compile(fn, backend=backend)
    for n in (4, 7, 9, 2):
        assert difference(fn, f, (torch.randn(n, 3),), rtol=1e-4, atol=1e-5) is None
    assert len(f.programs) == 1
    for n in (1, 0):
        assert difference(fn, f, (torch.randn(n, 3),), rtol=1e-4, atol=1e-5) is None
    assert not f.fallbacks


def test_second_derivatives() -> None:
    fn = lambda x: torch.func.hessian(lambda t: (t**3).sum())(x)
    f = anyshape.compile(fn, backend="aot_eager")
    for n in (3, 1, 0, 2):
        assert difference(fn, f, (torch.randn(n, 2),), rtol=1e-4, atol=1e-5) is None
    assert not f.fallbacks
