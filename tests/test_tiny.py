"""A run through everything, in seconds: if this fails, look at nothing else first."""

from __future__ import annotations

import json

import torch

import anyshape
from anyshape.explain import explain
from anyshape.testing import expect_programs


def test_one_program_for_every_size() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ w).sum(-1)

    f = anyshape.compile(fn, backend="aot_eager")
    w = torch.randn(4, 3)
    with expect_programs(1):
        for n in (5, 7, 1, 0, 2):
            x = torch.randn(n, 4)
            assert torch.equal(f(x, w), fn(x, w))
    assert f.fallbacks == {}


def test_a_branch_has_two_programs() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 8:
            return x + 1
        return x * 2

    f = anyshape.compile(fn, backend="eager")
    with expect_programs(2):
        for n in (3, 12, 1, 30, 0, 9, 8):
            x = torch.arange(float(n))
            assert torch.equal(f(x), fn(x))
    assert sorted(p.behavior for p in f.programs) == ["x.shape[0] <= 8", "x.shape[0] > 8"]


def test_squeeze_has_two_programs_in_any_order() -> None:
    for order in ((5, 1, 0, 7), (1, 5, 0, 7), (0, 1, 5, 7)):
        f = anyshape.compile(lambda x: x.squeeze(0) * 2, backend="eager")
        with expect_programs(2):
            for n in order:
                assert f(torch.ones(n, 3)).shape == torch.ones(n, 3).squeeze(0).shape


def test_gradients() -> None:
    f = anyshape.compile(lambda x, w: torch.tanh(x * w).sum(), backend="aot_eager")
    for n in (4, 1, 6, 0):
        x = torch.randn(n, 3)
        ours, eager = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        f(x, ours).backward()
        torch.tanh(x * eager).sum().backward()
        torch.testing.assert_close(ours.grad, eager.grad)
    assert len(f.programs) == 1


def test_an_error_of_eager_is_eagers_own() -> None:
    f = anyshape.compile(torch.matmul, backend="eager")
    assert f(torch.ones(2, 3), torch.ones(3, 4)).shape == (2, 4)
    try:
        f(torch.ones(2, 3), torch.ones(5, 4))
    except Exception as error:
        assert type(error) is RuntimeError
    else:
        raise AssertionError("eager raises here")
    assert f(torch.ones(6, 7), torch.ones(7, 1)).shape == (6, 1)


def test_explain_of_it_all() -> None:
    f = anyshape.compile(lambda x: x + 1, backend="eager")
    f(torch.ones(3))
    report = explain(f)
    assert "1 program, 1 call" in str(report) and "every size" in str(report)
    assert json.loads(json.dumps(report.json()))["programs"][0]["calls"] == 1


def test_a_class_verified_at_one_size_says_nothing_of_another() -> None:
    # Captured at 0; 5 is verified and served; 1 has the outcomes of 5, and another number of results.
    f = anyshape.compile(lambda x: x.chunk(2), backend="aot_eager")
    for n in (0, 5, 1, 2, 7):
        x = torch.ones(n, 2)
        assert [c.shape for c in f(x)] == [c.shape for c in x.chunk(2)]
