"""An int or a float that is only an operator's number: one program for all values, and eager's results."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import anyshape
from anyshape import ops, testing
from anyshape._torch.repairs.scalars import scalar_calls

FLOATS = (0.5, 2.0, -1.5, 0.0, 1.0)
POSITIVE = (0.5, 2.0, 1.5, 0.1)
INTS = (0, 1, 2, 3, -1, 5)
Function = Callable[[Any, Any], Any]


def matrix() -> torch.Tensor:
    return torch.linspace(0.2, 3.1, 12).view(3, 4)


CLASSES = torch.tensor([0, 1, 2])
# A rule's function -> a call of it, values, and how many behaviors they are.
RULES: dict[Any, tuple[Function, tuple[Any, ...], int]] = {
    torch.rot90: (lambda x, k: torch.rot90(x, k), (0, 1, 2, 3, -1, 6, 9), 4),
    torch.round: (lambda x, k: x.round(decimals=k), INTS, 3),
    torch.var: (lambda x, k: x.var(1, correction=k), (0, 1, 2, 0.5, 4, 7), 2),
    torch.std: (lambda x, k: torch.std(x, correction=k), INTS, 1),
    torch.diagonal: (lambda x, k: x.diagonal(k), (0, 1, 3, -1, -2, 9, -9), 4),
    torch.diag: (lambda x, k: torch.diag(x, k), (0, 1, 2, 3), 1),
    F.layer_norm: (lambda x, a: F.layer_norm(x, (4,), x[0], x[1], a), POSITIVE, 1),
    F.rms_norm: (lambda x, a: F.rms_norm(x, (4,), x[0], a), POSITIVE, 1),
    F.group_norm: (lambda x, a: F.group_norm(x, 2, x[0], None, a), POSITIVE, 1),
    F.batch_norm: (
        lambda x, a: F.batch_norm(x, torch.zeros(4), torch.ones(4), x[0], x[1], True, a, a),
        (0.5, 0.1, 0.25),
        1,
    ),
    F.scaled_dot_product_attention: (
        lambda x, a: F.scaled_dot_product_attention(x[None], x[None], x[None], scale=a),
        POSITIVE,
        1,
    ),
    torch.float_power: (lambda x, a: x.float_power(a), FLOATS, 1),
    torch.logit: (lambda x, a: torch.logit(x / 4, a), (0.1, 0.2, 0.01, 0.6), 1),
    torch.nan_to_num: (lambda x, a: torch.nan_to_num((x - x[0]) / (x - x[0]) * x.log() / (x - x), a, 3.0), FLOATS, 1),
    F.celu: (lambda x, a: F.celu(x - 1, a), POSITIVE, 1),
    F.huber_loss: (lambda x, a: F.huber_loss(x, x * 2, delta=a), POSITIVE, 1),
    F.smooth_l1_loss: (lambda x, a: F.smooth_l1_loss(x, x * 2, beta=a), POSITIVE, 1),
    F.margin_ranking_loss: (lambda x, a: F.margin_ranking_loss(x, x * 2, x.sign(), a), FLOATS, 1),
    F.cosine_similarity: (lambda x, a: F.cosine_similarity(x, x.flip(0), eps=a), POSITIVE, 1),
    F.cross_entropy: (
        lambda x, a: F.cross_entropy(x, CLASSES, x[0], label_smoothing=a, ignore_index=1),
        (0.1, 0.5, 0.25, 1.0),
        1,
    ),
    torch.isclose: (lambda x, a: torch.isclose(x, x * 1.2, rtol=a, equal_nan=True), (0.1, 0.2, 0.0, 0.5), 1),
    torch.quantile: (lambda x, a: x.quantile(a, 1), (0.1, 0.5, 1.0, 0.0), 1),
    torch.nanquantile: (lambda x, a: x.nanquantile(a), (0.1, 0.5, 1.0, 0.0), 1),
    F.pad: (lambda x, a: F.pad(x, (1, 2), value=a), FLOATS, 1),
}
# Calls of kernels, which AOTAutograd has in its graphs.
CALLS: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "leaky_relu": (lambda x, a: F.leaky_relu(x - 1, a), FLOATS),
    "clamp": (lambda x, a: x.clamp(a, 2.0) + x.clamp(min=-a, max=a) + x.clamp_min(a), FLOATS),
    "pow": (lambda x, a: x**a + a**x, POSITIVE),
    "elu": (lambda x, a: F.elu(x - 1, a) + F.celu(x - 1, a) + F.selu(x * a), POSITIVE),
    "threshold": (lambda x, a: F.threshold(x, a, 7.0) + F.hardtanh(x, -a, a), POSITIVE),
    "shrink": (lambda x, a: F.hardshrink(x - 1, a) + F.softshrink(x - 1, a), POSITIVE),
    "softplus": (lambda x, a: F.softplus(x, a, 2.5) + F.softplus(x, 1.0, a), POSITIVE),
    "where": (lambda x, a: torch.where(x > a, x, a) + x.masked_fill(x < 1, a), FLOATS),
    "lerp": (lambda x, a: torch.lerp(x, x * 2, a), FLOATS),
    "alpha": (lambda x, a: torch.add(x, x, alpha=a) - torch.sub(x, x, alpha=-a) + torch.add(x, a, alpha=2), FLOATS),
    "addcmul": (lambda x, a: x.addcmul(x, x, value=a) + x.addcdiv(x, x, value=a), FLOATS),
    "addmm": (lambda x, a: torch.addmm(x @ x.T, x, x.T, alpha=a, beta=a / 2), (0.5, 2.5, -1.5)),
    "remainder": (lambda x, a: x.remainder(a) + x.fmod(a) + torch.div(x, a, rounding_mode="floor") + x // a, POSITIVE),
    "index": (lambda x, a: x.index_fill(0, CLASSES[:2], a).index_add(0, CLASSES, x, alpha=a), (0.5, 2.0, -1.5)),
    "scatter": (lambda x, a: x.scatter(0, CLASSES[None], a), FLOATS),
    "full": (lambda x, a: torch.full((3,), a) + x.new_full((3,), a) + torch.full_like(x[:, :3], a).fill_(-a), FLOATS),
    "rsub": (lambda x, a: torch.rsub(x, a) + x.copysign(a) + torch.xlogy(x, a), POSITIVE),
    "linspace": (lambda x, a: x[:, :3] * torch.linspace(0, a, 3) + torch.tensor(a), FLOATS),
}


def cost(function: Function, values: Any, *, grad: bool, backend: str = "aot_eager") -> tuple[list[str], int]:
    """What differs from eager; the programs and the calls that ran eagerly."""
    torch.compiler.reset()
    compiled = anyshape.compile(function, backend=backend)
    found: list[str | None] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for value in values:
            arguments = matrix().requires_grad_(grad), value
            found.append(testing.difference(function, compiled, arguments, backward=grad, rtol=1e-4, atol=1e-4))
    return [text for text in found if text is not None], len(compiled.programs) + sum(compiled.fallbacks.values())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_for_a_number_is_right_and_of_use(rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    function, values, behaviors = RULES[rule]
    found, programs = cost(function, values, grad=False)
    assert (found, programs) == ([], behaviors)
    assert cost(function, values[:3], grad=rule is not F.batch_norm)[0] == []
    for rules in (ops.SIZE_RULES, ops.FLOAT_RULES):
        if rule in rules:
            monkeypatch.delitem(rules, rule)
    assert cost(function, values, grad=False)[1] > programs


def test_every_rule_for_a_float_is_tried() -> None:
    assert ops.FLOAT_RULES.keys() <= RULES.keys()


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_is_given_a_float_is_one_program(name: str) -> None:
    assert cost(*CALLS[name], grad=False) == ([], 1)


OF_ITS_OWN = ("pow", "lerp", "remainder", "rsub")  # C++ formulas of their gradients read the number: a program for each
A_BRANCH = ("alpha",)  # whether it is 1


@pytest.mark.parametrize("name", CALLS)
def test_gradients_of_a_call_that_is_given_a_float(name: str) -> None:
    function, values = CALLS[name]
    found, programs = cost(function, values, grad=True)
    assert found == []
    assert programs == (1 + (name in A_BRANCH)) or name in OF_ITS_OWN


def test_without_the_rewriting_there_is_one_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalar_calls, "CALLS", {})
    assert cost(*CALLS["leaky_relu"], grad=False)[1] == len(FLOATS)
    found, programs = cost(*CALLS["alpha"], grad=False)
    assert found or programs == len(FLOATS)  # torch 2.13 leaves `alpha` out, and its result is wrong


@pytest.mark.parametrize("name", ["clamp", "pow", "full"])
def test_kernels_take_all_values(name: str) -> None:
    assert cost(*CALLS[name], grad=False, backend="inductor") == ([], 1)


@pytest.mark.parametrize("value", [1e300, float("inf"), float("nan"), -0.0])
def test_floats_that_kernels_refuse(value: float) -> None:
    """They follow one that they take."""
    for name in ("clamp", "leaky_relu", "where", "full", "addcmul"):
        assert cost(CALLS[name][0], (0.5, value), grad=False)[0] == []
