"""Every rule of `anyshape.ops`: equal to eager over sizes, and of use. Without it a program more, a difference, or eager."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import anyshape
from anyshape import ops, testing
from anyshape.fuzz import opinfos
from anyshape.fuzz.oracle import Target
from anyshape.ops import attention as attention_rules
from anyshape.ops import given_sizes

SIZES = (3, 7, 2, 1, 0)
# The fused kernel dies of a division by zero where there is nothing to attend to: without its rule so does the process.
FATAL = (F.scaled_dot_product_attention, F.multi_head_attention_forward)


@dataclasses.dataclass(frozen=True)
class Case:
    """A function that makes the call, and arguments of several sizes."""

    fn: Callable[..., Any]
    calls: list[tuple[Any, ...]]
    backend: str = "aot_eager"


def over_sizes(fn: Callable[..., Any], make: Callable[[int], Any], backend: str = "aot_eager") -> Case:
    made = (make(n) for n in SIZES)
    return Case(fn, [args if isinstance(args, tuple) else (args,) for args in made], backend)


def one_length(transform: Any) -> Case:
    """Transforms to a length that is longer, shorter and equal."""
    kind = torch.cfloat if transform in (torch.fft.irfft, torch.fft.hfft) else torch.float
    pairs = ((3, 5), (7, 4), (2, 2), (1, 3), (5, 1))
    return Case(lambda x, n: transform(x, n=n), [(torch.randn(2, n, dtype=kind), m) for n, m in pairs])


def two_lengths(transform: Any) -> Case:
    half = ("irfft2", "hfft2", "irfftn", "hfftn")
    kind = torch.cfloat if transform.__name__.removeprefix("fft_") in half else torch.float
    triples = ((3, 4, 3), (7, 5, 7), (2, 3, 1), (5, 5, 8))
    return Case(
        lambda x, a, b: transform(x, s=(a, b), dim=(1, 2)),
        [(torch.randn(2, n, n, dtype=kind), a, b) for n, a, b in triples],
    )


def attention() -> Case:
    shapes = [(2, 2, 3, 4), (2, 0, 3, 4), (3, 2, 7, 4), (1, 2, 2, 4), (2, 2, 1, 4), (2, 2, 0, 4), (0, 2, 3, 4)]
    shapes += [(2, 3, 4), (1, 7, 4), (0, 3, 4), (2, 0, 4)]
    causal = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[-2] > 1)
    return Case(causal, [(torch.randn(*s),) * 3 for s in shapes])


def packed_attention() -> Case:
    block = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    shapes = [(3, 5), (2, 0), (0, 4), (1, 1), (4, 3)]
    return Case(lambda x: block(x, x, x, need_weights=False)[0], [(torch.randn(*s, 8),) for s in shapes])


def pooling(pool: Any) -> Case:
    return Case(lambda x: pool(x, 2), [(torch.randn(b, 3, n),) for b, n in ((2, 8), (1, 7), (3, 2), (0, 5))])


def transposed_norm() -> Case:
    def norm(x: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x.transpose(1, 2), None, None, training=True).view(-1)

    return Case(norm, [(torch.randn(n, 4, 8),) for n in (3, 7, 2)])


CASES: dict[Any, Case] = {
    F.scaled_dot_product_attention: attention(),
    F.multi_head_attention_forward: packed_attention(),
    F.batch_norm: transposed_norm(),
    torch.roll: over_sizes(
        lambda x: torch.roll(x.movedim(-1, 1), 1, 2).movedim(1, -1).view(-1), lambda n: torch.randn(2, n, 4, 5)
    ),
    F.one_hot: over_sizes(lambda x: F.one_hot(x.t(), 5), lambda n: torch.arange(3 * n).reshape(n, 3) % 5),
    F.max_pool1d: pooling(F.max_pool1d),
    torch.max_pool1d: pooling(torch.max_pool1d),
    torch.equal: over_sizes(lambda x, y: torch.equal(x, y), lambda n: (torch.ones(n), torch.ones(n) * (n % 3))),
    torch.allclose: over_sizes(lambda x, y: torch.allclose(x, y), lambda n: (torch.ones(n), torch.ones(n) * (n % 3))),
    torch.gradient: Case(lambda x: torch.gradient(x)[0], [(torch.randn(n),) for n in (3, 7, 2)]),
    torch.sgn: over_sizes(lambda x: torch.sgn(x), lambda n: torch.randn(n).requires_grad_()),
    torch.kron: over_sizes(lambda x, y: torch.kron(x, y), lambda n: (torch.randn(n, 2), torch.randn(3, n))),
    torch.take_along_dim: over_sizes(
        lambda x, i: torch.take_along_dim(x, i, 1), lambda n: (torch.randn(n, 4), torch.ones(1, 3).long())
    ),
    torch.max: over_sizes(lambda x: torch.max(x, 1), lambda n: torch.randn(4, n), "inductor"),
    torch.min: over_sizes(lambda x: torch.min(x), lambda n: torch.randn(4, n), "inductor"),
    torch.var_mean: over_sizes(lambda x: torch.var_mean(x, 1), lambda n: torch.randn(4, n), "inductor"),
    torch.std_mean: over_sizes(lambda x: torch.std_mean(x, 1), lambda n: torch.randn(4, n), "inductor"),
    torch.block_diag: over_sizes(
        lambda x, y: torch.block_diag(x, y, x), lambda n: (torch.randn(n).requires_grad_(), torch.randn(2, n))
    ),
    torch.masked_select: over_sizes(
        lambda x: torch.masked_select(x, x > 0), lambda n: torch.linspace(-1, 1, n + 3).requires_grad_()
    ),
    F.dropout: over_sizes(lambda x: F.dropout(x, 0.5, False).add_(1), torch.zeros),
    torch.dropout: over_sizes(lambda x: torch.dropout(x, 0.0, True).add_(1), torch.zeros),
    torch.trace: Case(
        lambda x: torch.trace(x),
        [(torch.randn(n, m).requires_grad_(),) for n, m in ((3, 5), (7, 4), (2, 2), (1, 3), (0, 2))],
    ),
    torch.linspace: over_sizes(lambda x: torch.linspace(-1, 2, x.shape[0]), torch.zeros),
    torch.tensor_split: over_sizes(lambda x: torch.tensor_split(x, 3)[:2], lambda n: torch.randn(n, 2)),
    torch.vander: over_sizes(lambda x: (torch.vander(x), torch.vander(x, 3, True)), torch.randn),
    torch.fft.fftfreq: Case(lambda x: torch.fft.fftfreq(x.shape[0]), [(torch.zeros(n),) for n in (3, 7, 2, 1)]),
    torch.fft.rfftfreq: Case(lambda x: torch.fft.rfftfreq(x.shape[0]), [(torch.zeros(n),) for n in (3, 7, 2, 1)]),
}


def whole(pool: Any, dims: int) -> Case:
    """One window, which has all there is."""
    shapes = [(2, 3, *(n + i for i in range(dims))) for n in (3, 7, 2, 1)]
    return Case(lambda x: pool(x, x.shape[2:]) + pool(x, kernel_size=x.shape[2:]), [(torch.randn(s),) for s in shapes])


# Of calls that are given a size, which are symbolic then.
SIZE_CASES: dict[Any, Case] = {
    F.one_hot: Case(
        lambda x, i: F.one_hot(i, x.shape[0]),
        [
            (torch.zeros(n), i)
            for n in (3, 7, 2)
            for i in (torch.tensor([0, 1, 1]), torch.tensor([5]), torch.tensor([-1]))
        ],
    ),
    torch.triu_indices: over_sizes(lambda x: torch.triu_indices(x.shape[0], x.shape[0], 1), torch.zeros),
    torch.tril_indices: over_sizes(lambda x: torch.tril_indices(x.shape[0], 4), torch.zeros),
    torch.hann_window: over_sizes(lambda x: torch.hann_window(x.shape[0]), torch.zeros),
    torch.hamming_window: over_sizes(lambda x: torch.hamming_window(x.shape[0], False), torch.zeros),
    math.log: Case(
        lambda x: x * math.log(x.shape[0]) + math.log(x.shape[0], 10), [(torch.ones(n),) for n in (3, 7, 2, 1, 0)]
    ),
    F.avg_pool1d: whole(F.avg_pool1d, 1),
    F.avg_pool2d: whole(F.avg_pool2d, 2),
    F.avg_pool3d: whole(F.avg_pool3d, 3),
    F.max_pool2d: whole(F.max_pool2d, 2),
    F.max_pool3d: whole(F.max_pool3d, 3),
}
FOURIER = [rule for rule in ops.RULES if rule not in CASES]
CASES |= {rule: (two_lengths if rule.__name__.endswith(("2", "n")) else one_length)(rule) for rule in FOURIER}


def cost(case: Case) -> tuple[list[str], int, int]:
    """What differs from eager; the programs and the calls that ran eagerly."""
    torch.compiler.reset()
    f = anyshape.compile(case.fn, backend=case.backend)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [testing.difference(case.fn, f, args, rtol=1e-4, atol=1e-4) for args in case.calls]
    return [text for text in found if text is not None], len(f.programs), sum(f.fallbacks.values())


def name(rule: Any) -> str:
    functional = rule in (F.max_pool1d, F.dropout)
    return f"functional_{rule.__name__}" if functional else str(rule.__name__)


@pytest.mark.parametrize("rule", [rule for rule in ops.RULES if rule not in FATAL], ids=name)
def test_a_rule_is_right_and_of_use(rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[rule]
    with_rule = cost(case)
    assert with_rule[0] == []
    monkeypatch.delitem(ops.RULES, rule)
    without = cost(case)
    # A call that breaks the graph leaves nothing to compile.
    assert without[0] or without[1] == 0 or without[1] + without[2] > with_rule[1] + with_rule[2]


@pytest.mark.parametrize("rule", given_sizes.RULES, ids=name)
def test_a_rule_for_a_size_is_right_and_of_use(rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found, programs, eager = cost(SIZE_CASES[rule])
    assert found == []
    monkeypatch.delitem(ops.SIZE_RULES, rule)
    assert sum(cost(SIZE_CASES[rule])[1:]) > programs + eager


def test_what_a_rule_for_a_size_is_not_for() -> None:
    """Windows that are not all there is, sizes that are numbers, and numbers that eager refuses."""
    fns: list[Callable[..., Any]] = [
        lambda x: F.avg_pool1d(x, 2),
        lambda x: F.avg_pool1d(x, x.shape[2], padding=1),
        lambda x: F.max_pool2d(x, (1, x.shape[2]), return_indices=True)[1],
        lambda x: F.avg_pool1d(x.long(), x.shape[2]),
        lambda x: F.one_hot(torch.tensor([1, 2]), 3) * x.shape[2],
    ]
    for fn in fns:
        found, _, _ = cost(Case(fn, [(torch.randn(2, 3, n),) for n in (4, 6, 2)]))
        assert found == []


@pytest.mark.parametrize("rule", FATAL, ids=name)
def test_a_rule_without_which_the_process_dies(rule: Any) -> None:
    assert cost(CASES[rule])[0] == []
    if attention_rules.FUSED_DIMS == 3:
        pytest.skip("torch takes the plain formula there, which is slow")
    lines = (
        "import test_rules",
        "from anyshape import ops",
        f"rule = next(r for r in test_rules.FATAL if test_rules.name(r) == {name(rule)!r})",
        "del ops.RULES[rule]",
        "print('differences:', test_rules.cost(test_rules.CASES[rule])[0])",
    )
    child = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], cwd=__file__.rpartition("/")[0], capture_output=True, text=True
    )
    assert child.returncode != 0 or "differences: []" not in child.stdout


_FUNCTIONAL = ("scaled_dot_product_attention", "batch_norm", "max_pool1d", "one_hot", "dropout")
OPERATORS = (
    *(f"nn_functional_{name}" for name in _FUNCTIONAL),
    *("equal", "allclose", "gradient", "kron", "take_along_dim", "squeeze"),
    *(f"{name}_reduction_{way}" for name in ("max", "min") for way in ("with_dim", "no_dim")),
    *("block_diag", "masked_select", "linspace", "tensor_split", "roll", "var_mean", "std_mean", "sgn", "trace"),
    *(f"fft_{rule.__name__.removeprefix('fft_')}" for rule in FOURIER),
)


@pytest.mark.slow
@pytest.mark.parametrize("op", OPERATORS)
def test_every_sample_of_an_operator_with_a_rule_is_eager(op: str) -> None:
    rows = opinfos.sweep(op, Target(), most=1000)
    if not rows:
        pytest.skip("no sample of it changes with the size")
    assert [row for row in rows if row.differences] == []
