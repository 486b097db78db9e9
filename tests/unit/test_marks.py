"""Marks on tensors, torch's own marks, lists of sources, torch's specs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.compiler.config as compiler_config

import anyshape
from anyshape._torch.symbolic import dim_marks, shapes_spec


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def compiled(fn: Any, **words: Any) -> Any:
    return anyshape.compile(fn, backend="aot_eager", **words)


def marked(tensor: torch.Tensor, mark: Any, dim: Any, **words: Any) -> torch.Tensor:
    mark(tensor, dim, **words)
    return tensor


def test_unbacked_sizes_of_one_name_are_one_size() -> None:
    f = compiled(lambda x, y: torch.squeeze(x, 0) * y.sum())
    a = marked(torch.randn(3, 4), anyshape.mark_unbacked, 0, name="b")
    b = marked(torch.randn(3), anyshape.mark_unbacked, 0, name="b")
    assert f(a, b).shape == (3, 4) and f(torch.randn(1, 4), torch.randn(1)).shape == (1, 4)
    assert [p.behavior for p in f.programs] == ["every size"]
    with pytest.raises(anyshape.AssumptionError, match="does not hold"):
        f(torch.randn(5, 4), torch.randn(6))


def test_a_range_decides_a_branch_and_is_checked() -> None:
    f = compiled(lambda x: x * 2 if x.shape[0] > 4 else x)
    f(marked(torch.randn(8), anyshape.mark_dynamic, 0, min=5, max=64))
    assert [p.behavior for p in f.programs] == ["every size"]
    assert (
        torch.equal(f(torch.ones(3)), torch.ones(3)) and len(f.programs) == 2
    )  # what is not marked is as free as ever
    with pytest.raises(anyshape.InvariantError, match=r"x.shape\[0\] <= 64 does not hold"):
        f(marked(torch.randn(80), anyshape.mark_dynamic, 0, min=5, max=64))


def test_names_that_meet_in_two_sizes_are_refused() -> None:
    f = compiled(lambda x, y: x.sum() + y.sum())
    with pytest.raises(anyshape.InvariantError):
        f(*(marked(torch.randn(n), anyshape.mark_dynamic, -1, name="n") for n in (3, 4)))


def test_static_sizes_are_static() -> None:
    f = compiled(lambda x: x + 3)
    f(marked(torch.randn(4, 4), anyshape.mark_static, [1]))
    f(torch.randn(5, 4))
    assert len(f.programs) == 1
    f(torch.randn(5, 6))
    assert len(f.programs) == 2


def test_torchs_own_marks() -> None:
    f = compiled(lambda x: torch.squeeze(x, 0) + 3)
    assert f(marked(torch.randn(1, 4), torch._dynamo.decorators.mark_unbacked, 0)).shape == (1, 4)
    g = compiled(lambda x: x * 2 if x.shape[0] > 4 else x)
    g(marked(torch.randn(8), torch._dynamo.mark_dynamic, 0, min=5, max=64))
    assert [p.behavior for p in g.programs] == ["every size"]
    h = compiled(lambda x: x - 1)
    h(marked(torch.randn(4, 4), torch._dynamo.mark_static, 1))
    h(torch.randn(5, 5))
    assert len(h.programs) == 2


@pytest.mark.parametrize("sources", ["L['x']:0", "L\\['x'\\]:0", "L['y'],L['x']:0"])
def test_sources_of_the_environment(sources: str) -> None:
    with compiler_config.patch(unbacked_sources=sources):
        f = compiled(lambda x: torch.squeeze(x, (0, 1)))
        assert f(torch.randn(1, 1, 4)).shape == (1, 4)


def test_sources_say_which_dim() -> None:
    assert dim_marks._listed("L['x']:1", "L['x']", 1) and not dim_marks._listed("L['x']:1", "L['x']", 0)
    assert dim_marks._listed("L['x'], L['y']", "L['y']", 3) and not dim_marks._listed("", "L['y']", 0)
    with compiler_config.patch(dynamic_sources="L['x']:0"):
        f = compiled(lambda x: x * 2)
        for n in (3, 1, 0):
            f(torch.randn(n, 2))
    assert len(f.programs) == 1


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda x: anyshape.mark_dynamic(x, 2), "AS011"),
        (lambda x: anyshape.mark_dynamic(x, 0, min=5, max=2), "AS012"),
        (lambda x: anyshape.mark_dynamic(x, 0, min=-1), "AS007"),
        (lambda x: anyshape.mark_unbacked(x, 0, min=5, hint=2), "AS012"),
        (lambda x: anyshape.mark_unbacked(x, 0, name="a b"), "AS010"),
        (lambda x: anyshape.mark_dynamic("x", 0), "AS007"),
    ],
)
def test_marks_that_cannot_be(call: Any, code: str) -> None:
    with pytest.raises(anyshape.DeclarationError) as caught:
        call(torch.randn(3, 4))
    assert caught.value.code == code and caught.value.where


@pytest.mark.skipif(shapes_spec.dynamic_spec is None, reason="this torch has no ShapesSpec")
def test_torchs_specs() -> None:
    from torch.fx.experimental.dynamic_spec import ShapesSpec, ShapeVar, TensorSpec

    a, b = ShapeVar("a", min=2, max=64, optimization_hint=16), ShapeVar("b")
    spec = ShapesSpec({"x": TensorSpec([a, b]), "y": TensorSpec([a * 2 + 1, None])}, assumptions=[a > b])

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sum() + y.sum() if x.shape[0] > x.shape[1] else x

    f = compiled(fn, shapes=spec)
    for n in (4, 5):
        x, y = torch.randn(n, 3), torch.randn(2 * n + 1, 2)
        torch.testing.assert_close(f(x, y), fn(x, y))
    assert [p.behavior for p in f.programs] == ["every size"] and f.declaration.hints == {"a": (16,)}
    with pytest.raises(anyshape.InvariantError, match="2\\*a\\+1"):
        f(torch.randn(4, 3), torch.randn(8, 2))
