"""What a program admits: the generated code against a verification of every node at exactly the sizes of a call."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from admission_faults import FAULTS
from torch import Tensor

import anyshape
from anyshape._torch.fake_runs import concrete, verify
from anyshape.admission import likely_sizes
from anyshape.admission.admission import Admission
from anyshape.admission.admission_code import Writer, compiled
from anyshape.foundation.call_keys import ADMITTED, UNTOLD
from anyshape.testing import difference

SIZES = (3, 5, 0, 1)


def table(rows: Tensor, ids: Tensor) -> Tensor:
    return F.embedding(ids, rows).sum(-1)


def picked(x: Tensor, i: Tensor) -> Tensor:
    return x[i].mean(1) + x.index_select(0, i).sum(1)


def heads(x: Tensor, w: Tensor) -> Tensor:
    n, k = x.shape
    return (x.reshape(n, k, 1).transpose(0, 1).reshape(k * n, 1) * w).transpose(0, 1).reshape(-1)


def joined(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([x, y.mT], 0).relu() @ torch.ones(x.shape[1], 2)


def broadcast(x: Tensor, y: Tensor) -> Tensor:
    return x.unsqueeze(1) + y.unsqueeze(0)


def normalized(x: Tensor, w: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[1],)) * w.sum() + F.batch_norm(x, None, None, training=True)


def parts(x: Tensor, y: Tensor) -> list[Tensor]:
    return [t.sum(0) for t in x.chunk(2, 1)] + [y[: x.shape[0]].flatten()]


def flat(x: Tensor, y: Tensor) -> list[Tensor]:
    """A view of the input where a size is 1, else a copy."""
    return [x.mT.reshape(-1), (y + 1).mT.reshape(-1)]


def clamped(x: Tensor, y: Tensor) -> list[Tensor]:
    return [x[: y.shape[0]], y[2:] * 2, torch.diagonal(x.reshape(-1, 1) + y.T)]


def rows(x: Tensor, y: Tensor) -> Tensor:
    return x.expand(x.shape[0], y.shape[0]) / y.shape[0]


def windows(x: Tensor, y: Tensor) -> Tensor:
    return F.conv1d(x.unsqueeze(0), torch.ones(2, 3, 2)) if x.shape[0] == 3 else F.pad(x, (1, y.shape[0])).cumsum(1)


def written(x: Tensor, y: Tensor) -> Tensor:
    y = y.clone()
    y.view(-1)[: x.shape[1]] = 0
    y[:1].copy_(x[:1].sum(1, keepdim=True))
    return y.max(0).values


FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[[int, int], tuple[Tensor, ...]]]] = {
    "table": (table, lambda n, k: (torch.randn(n, 2), torch.zeros(2, k, dtype=torch.long))),
    "picked": (picked, lambda n, k: (torch.randn(n, 4), torch.zeros(k, dtype=torch.long))),
    "heads": (heads, lambda n, k: (torch.randn(n, k), torch.randn(n * k, 1))),
    "joined": (joined, lambda n, k: (torch.randn(n, k), torch.randn(k, 2))),
    "broadcast": (broadcast, lambda n, k: (torch.randn(n, 3), torch.randn(k, 3))),
    "normalized": (normalized, lambda n, k: (torch.randn(n, k), torch.randn(n))),
    "parts": (parts, lambda n, k: (torch.randn(n, k), torch.randn(n, 2, k))),
    "flat": (flat, lambda n, k: (torch.randn(n, k), torch.randn(k, n, 2))),
    "clamped": (clamped, lambda n, k: (torch.randn(n, 2), torch.randn(k, 1))),
    "rows": (rows, lambda n, k: (torch.randn(n, 1), torch.randn(k))),
    "windows": (windows, lambda n, k: (torch.randn(n, k), torch.randn(n))),
    "written": (written, lambda n, k: (torch.randn(n, k), torch.randn(n, k))),
}


def truly_admits(admission: Admission, key: tuple[int, ...]) -> bool:
    """By running every node that was told something else, at these very sizes and nothing learnt."""
    sizes = admission.binding(key)
    if admission._refuses_layout(key) or not all(a.holds(sizes) for a in admission.answers):
        return False
    for unit in admission.units:
        node = unit.node
        if all(a.holds(sizes) for a in unit.assumed):
            continue
        found = verify.differs(node, sizes, strict=node.chooses_otherwise(sizes))
        if found is not None and not found.only_strides:
            return False
    if all(a.holds(sizes) for a in admission.recording.aot_decisions.values()):
        return True
    return all(verify.differs(node, sizes) is None for node in admission.recording.aten)


def admissions(f: Any) -> Iterator[Admission]:
    for program in f._engine.programs:
        assert program.admission is not None
        yield program.admission


def disagreement(fn: Callable[..., Any], make: Callable[[int, int], tuple[Tensor, ...]]) -> str | None:
    """What of a function is not as eager has it, or is told by the code of an admission and not so; None if nothing."""
    f = anyshape.compile(fn, backend="aot_eager")
    for n, k in itertools.product(SIZES, SIZES):
        text = difference(fn, f, make(n, k))
        if text is not None:
            return f"({n}, {k}): {text}"
    for admission in admissions(f):
        evaluate = compiled(admission, Writer(admission, live=True))
        told = {key: evaluate(key) for key in list(admission.known)}
        # Of the sizes of the capture itself nothing was learnt: they were verified before it was compiled.
        if not admission.untold and sum(answer == UNTOLD for answer in told.values()) > 1:
            return f"nothing is told of sizes that were served: {told}"
        for key, answer in told.items():
            if answer != UNTOLD and (answer == ADMITTED) is not truly_admits(admission, key):
                return f"{key}: the code says {answer}"
    return None


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_code_says_what_a_verification_of_every_node_says(name: str) -> None:
    assert disagreement(*FUNCTIONS[name]) is None


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_an_admission_is_seen(name: str) -> None:
    fault, program = FAULTS[name]
    with fault():
        assert disagreement(*FUNCTIONS[program]) is not None


@pytest.mark.parametrize("name", FUNCTIONS)
def test_sizes_that_answer_alike_need_no_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fn, make = FUNCTIONS[name]
    f = anyshape.compile(fn, backend="aot_eager")
    for n, k in itertools.product(SIZES, SIZES):
        with contextlib.suppress(RuntimeError, IndexError, ValueError):  # eager's own
            f(*make(n, k))
    before = sum(p.verifications for p in f.programs), len(f.programs)
    monkeypatch.setattr(concrete, "call", lambda *args: pytest.fail("a node was run for a size that answers alike"))
    for n, k in itertools.product((6, 9), (7, 1)):
        f(*make(n, k))
    assert (sum(p.verifications for p in f.programs), len(f.programs)) == before


def test_a_model_with_many_features_learns_what_one_does() -> None:
    """Not what each combination of empty and full features does, which there are 3 ** 12 of."""

    def fn(rows: Tensor, *ids: Tensor) -> Tensor:
        return torch.stack([F.embedding(i, rows).sum(1) for i in ids], 1)

    f = anyshape.compile(fn, backend="aot_eager")
    rows = torch.randn(10, 4)
    drawn = torch.Generator().manual_seed(0)
    make = lambda: [
        torch.randint(10, (2, int(torch.randint(3, (), generator=drawn))), generator=drawn) for _ in range(12)
    ]
    for _ in range(6):
        f(rows, *make())
    before = f.programs[0].verifications
    assert before < 30
    for _ in range(20):
        ids = make()
        assert torch.equal(f(rows, *ids), fn(rows, *ids))
    (program,) = f.programs
    assert program.verifications == before and not program.untold


def test_a_first_size_of_1_needs_no_run() -> None:
    """It was learned when the second size came: a size of 1 answers otherwise than others, and is sure to come."""
    layers = [torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.Conv2d(8, 8, 3), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()).eval()
    f = anyshape.compile(model, backend="aot_eager")
    with torch.no_grad():
        for n, side in ((7, 57), (7, 11), (5, 41)):
            f(torch.randn(n, 3, side, side))
        before = f.programs[0].verifications
        for n, side in ((1, 14), (1, 62), (1, 9), (3, 90)):
            x = torch.randn(n, 3, side, side)
            assert difference(model, f, (x,)) is None
    (program,) = f.programs
    assert program.verifications == before and not program.untold


def test_likely_sizes_keep_what_belongs_together() -> None:
    """Equal sizes stay equal, what never changed is at most 1, and what is no size of a tensor stays."""
    seen = [(7, 216, 216, 3, 7, 9), (1, 133, 133, 3, 1, 5)]
    one_row, short = (1, 133, 133, 3, 1, 5), (7, 1, 1, 3, 7, 5)
    assert list(likely_sizes.likely(seen, {0, 1, 2, 3, 4})) == [
        one_row,
        (1, 257, 257, 3, 1, 5),
        short,
        (256, 1, 1, 3, 256, 5),
        (7, 133, 133, 1, 7, 5),
        (256, 257, 257, 1, 256, 5),
    ]


def test_keys_are_bounded_by_the_numbers_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from anyshape.admission import admission as dispatch

    monkeypatch.setattr(dispatch, "MOST_NUMBERS", 60)
    f = anyshape.compile(lambda x: x * 2, backend="aot_eager")
    f(torch.ones(2, 3))
    f(torch.ones(3, 3))  # here it is learned what holds for likely sizes
    before = f.programs[0].verifications
    for n in range(4, 40):
        assert f(torch.ones(n, 3)).shape == (n, 3)
    (admission,) = admissions(f)
    assert len(admission.known) <= 60 // 5
    assert f.programs[0].verifications == before


def test_a_float_is_not_run_for_each_size() -> None:
    f = anyshape.compile(lambda x, scale: x * scale * math.pi, backend="aot_eager")
    for n, k in itertools.product(SIZES, SIZES):
        f(torch.ones(n, k), 0.5)
    before = f.programs[0].verifications
    for n, scale in itertools.product((6, 7, 1), (0.1 + 0.2, -2.5)):
        assert torch.equal(f(torch.ones(n, 9), scale), torch.ones(n, 9) * scale * math.pi)
    (program,) = f.programs
    assert program.verifications == before and not program.untold
