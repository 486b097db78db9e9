"""The ops of pytorch/pytorch#135859 with `out=`: one program for every size, 0 and 1 and the buffer's own limit included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import anyshape

Calls = Sequence[tuple[Any, ...]]


def _positive_definite(batch: int, n: int) -> torch.Tensor:
    a = torch.randn(batch, n, n)
    return a @ a.mT + n * torch.eye(n)


def _topk_calls(sizes: Sequence[int]) -> Calls:
    out = (torch.empty(3), torch.empty(3, dtype=torch.long))
    return [(torch.randperm(n).float(), *out) for n in sizes]


def _topk(x: torch.Tensor, values: torch.Tensor, indices: torch.Tensor) -> Any:
    return torch.topk(x, 3, out=(values, indices))


def _bmm(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Any:
    return torch.bmm(a, b, out=out)


def _cholesky(a: torch.Tensor, out: torch.Tensor) -> Any:
    return torch.linalg.cholesky(a, out=out)


def _norm(a: torch.Tensor, out: torch.Tensor) -> Any:
    return torch.linalg.norm(a, dim=1, out=out)


def _max(a: torch.Tensor, values: torch.Tensor, indices: torch.Tensor) -> Any:
    return torch.max(a, 1, out=(values, indices))


def _max_buffers(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty(n), torch.empty(n, dtype=torch.long)


# 100 sizes with 0, 1 and 2 among them, not in order.
SIZES = [10, 1, 0, 2, *range(3, 10), *range(11, 100)]

CASES: dict[str, tuple[Callable[..., Any], Callable[[Sequence[int]], Calls]]] = {
    # The buffer holds three: its limit is a size of three.
    "topk": (_topk, lambda sizes: _topk_calls([n + 3 for n in sizes])),
    "topk at its limit first": (_topk, lambda sizes: _topk_calls([3, *[n + 3 for n in sizes]])),
    "bmm batch": (_bmm, lambda s: [(torch.randn(n, 3, 4), torch.randn(n, 4, 5), torch.empty(n, 3, 5)) for n in s]),
    "bmm inner": (_bmm, lambda s: [(torch.randn(2, 3, n), torch.randn(2, n, 5), torch.empty(2, 3, 5)) for n in s]),
    "bmm every dim": (
        _bmm,
        lambda s: [(torch.randn(n, n + 1, n), torch.randn(n, n, 3), torch.empty(n, n + 1, 3)) for n in s],
    ),
    "cholesky": (_cholesky, lambda s: [(_positive_definite(n, 4), torch.empty(n, 4, 4)) for n in s]),
    "cholesky order": (_cholesky, lambda s: [(_positive_definite(2, n), torch.empty(2, n, n)) for n in s]),
    "norm reduced": (_norm, lambda s: [(torch.randn(4, n), torch.empty(4)) for n in s]),
    "norm kept": (_norm, lambda s: [(torch.randn(n, 4), torch.empty(n)) for n in s]),
    "max reduced": (_max, lambda s: [(torch.randn(4, n), *_max_buffers(4)) for n in s if n]),
    "max kept": (_max, lambda s: [(torch.randn(n, 4), *_max_buffers(n)) for n in s]),
}


def _check(fn: Callable[..., Any], calls: Calls, **options: Any) -> Any:
    torch._dynamo.reset()
    compiled = anyshape.compile(fn, **options)
    for args in calls:
        expected_args = [a.clone() for a in args]
        expected = fn(*expected_args)
        result = compiled(*args)
        assert type(result) is type(expected)
        torch.testing.assert_close(result, expected)
        torch.testing.assert_close(list(args), expected_args)
        outs = result if isinstance(result, tuple) else (result,)
        assert all(any(o is a for a in args) for o in outs), "eager gives back the buffers themselves"
    return compiled


@pytest.mark.parametrize("name", CASES)
def test_one_program_for_every_size(name: str) -> None:
    fn, calls = CASES[name]
    compiled = _check(fn, calls(SIZES), backend="aot_eager")
    assert len(compiled.programs) == 1
    assert not compiled.fallbacks


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("first", [0, 1])
def test_one_program_whatever_comes_first(name: str, first: int) -> None:
    fn, calls = CASES[name]
    compiled = _check(fn, calls([first, 5, 1, 0, 2, 9][(first == 0 and name == "max reduced") :]), backend="aot_eager")
    assert len(compiled.programs) == 1
    assert not compiled.fallbacks


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_one_program_with_inductor(name: str) -> None:
    fn, calls = CASES[name]
    compiled = _check(fn, calls(SIZES), backend="inductor")
    assert len(compiled.programs) == 1
    assert not compiled.fallbacks


def test_too_few_for_topk_raises_as_eager() -> None:
    torch._dynamo.reset()
    compiled = anyshape.compile(_topk, backend="aot_eager")
    for n in (5, 2, 7, 0, 3):
        (args,) = _topk_calls([n])
        if n < 3:
            with pytest.raises(RuntimeError, match=r"out of range|k not in range"):
                compiled(*args)
        else:
            torch.testing.assert_close(compiled(*args)[0], args[0].sort(descending=True).values[:3])
    assert len(compiled.programs) == 1


def test_the_requirement_is_what_the_op_and_the_buffer_need() -> None:
    compiled = _check(_topk, _topk_calls([5, 9]), backend="aot_eager")
    (program,) = compiled.programs
    assert program.predicates == ()
    assert set(program.requirements) >= {"x.shape[0] >= 3", "values.shape[0] == 3"}
