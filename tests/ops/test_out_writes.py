"""Inductor's code for an `out=` call writes into the caller's buffer: no buffer for the result, no copy."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._inductor.utils import fresh_cache, run_and_get_code

import anyshape

rand = torch.randn


def _positive_definite(n: int) -> torch.Tensor:
    a = rand(n, 4, 4)
    return a @ a.mT + 4 * torch.eye(4)


CASES: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "mm": (lambda a, b, o: torch.mm(a, b, out=o), lambda n: (rand(n, 3), rand(3, 4), torch.zeros(n, 4))),
    "mm into a transposed buffer": (
        lambda a, b, o: torch.mm(a, b, out=o),
        lambda n: (rand(n, 3), rand(3, 4), torch.zeros(4, n).T),
    ),
    "bmm": (lambda a, b, o: torch.bmm(a, b, out=o), lambda n: (rand(n, 2, 3), rand(n, 3, 4), torch.zeros(n, 2, 4))),
    "addmm": (
        lambda c, a, b, o: torch.addmm(c, a, b, out=o),
        lambda n: (rand(n, 4), rand(n, 3), rand(3, 4), torch.zeros(n, 4)),
    ),
    "add": (lambda a, b, o: torch.add(a, b, out=o), lambda n: (rand(n), rand(n), torch.zeros(n))),
    "sum": (lambda a, o: torch.sum(a, 1, out=o), lambda n: (rand(n, 5), torch.zeros(n))),
    "topk": (
        lambda a, v, i: torch.topk(a, 2, out=(v, i)),
        lambda n: (rand(n, 5), torch.zeros(n, 2), torch.zeros(n, 2, dtype=torch.long)),
    ),
    "cholesky": (
        lambda a, o: torch.linalg.cholesky(a, out=o),
        lambda n: (_positive_definite(n), torch.zeros(n, 4, 4)),
    ),
    "inv": (lambda a, o: torch.linalg.inv(a, out=o), lambda n: (_positive_definite(n), torch.zeros(n, 4, 4))),
    "sort": (
        lambda a, v, i: torch.sort(a, out=(v, i)),
        lambda n: (rand(n, 5), torch.zeros(n, 5), torch.zeros(n, 5, dtype=torch.long)),
    ),
    "max": (
        lambda a, v, i: torch.max(a, 1, out=(v, i)),
        lambda n: (rand(n, 5), torch.zeros(n), torch.zeros(n, dtype=torch.long)),
    ),
}
ALLOCATIONS = {"cholesky": 1, "inv": 1}  # the kernel's error codes, one int a matrix


def compiled_code(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, str]:
    torch._dynamo.reset()
    compiled = anyshape.compile(fn)
    with fresh_cache():
        _, (code,) = run_and_get_code(compiled, *args)
    body = code[code.index("def call(") :]
    return compiled, body[: body.index("return (")]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_no_result_buffer_and_no_copy(name: str) -> None:
    fn, make = CASES[name]
    compiled, code = compiled_code(fn, make(5))
    assert code.count("empty_strided") == ALLOCATIONS.get(name, 0), code
    assert "copy" not in re.sub(r"_fused_\w+", "", code), code
    assert all(call.direct for call in compiled.programs[0].out_calls)
    for n in (7, 2, 9):
        args = make(n)
        expected = [a.clone() for a in args]
        fn(*expected)
        compiled(*args)
        torch.testing.assert_close(list(args), expected)
    assert len(compiled.programs) == 1


def _reads_the_result_too(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    torch.mm(a, b, out=out)
    return out * 2


def _gives_back_a_copy(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return torch.mm(a, b, out=out).clone()


def _reads_the_buffer_before(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    before = out.sum()
    torch.mm(a, b, out=out)
    return before


def _writes_twice(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    torch.mm(a, b, out=out)
    first = out + 1
    torch.mm(a + 1, b, out=out)
    return first


def test_explain_says_why_not() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor, sums: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        torch.cumsum(x, 0, out=sums)
        torch.mm(x, y, out=out)
        return out * 2

    compiled = anyshape.compile(fn)
    compiled(rand(5, 3), rand(3, 4), rand(5, 3), rand(5, 4))
    cumsum, mm = compiled.programs[0].out_calls
    assert (cumsum.op, cumsum.buffer, cumsum.direct) == ("cumsum", "sums", False)
    assert "no kernel" in cumsum.reason
    assert (mm.op, mm.buffer, mm.direct) == ("mm", "out", False)
    assert "read elsewhere" in mm.reason
    assert mm.line == cumsum.line + 1
    assert "mm(out=out) copies: the result" in str(anyshape.explain(compiled))
    other = anyshape.compile(lambda x, out: torch.sum(x, 0, out=out), backend="aot_eager")
    other(rand(3, 2), rand(2))
    assert not other.programs[0].out_calls[0].direct


@pytest.mark.slow
@pytest.mark.parametrize(
    "fn", [_reads_the_result_too, _gives_back_a_copy, _reads_the_buffer_before, _writes_twice], ids=lambda f: f.__name__
)
def test_others_who_read_see_what_eager_shows(fn: Callable[..., Any]) -> None:
    torch._dynamo.reset()
    compiled = anyshape.compile(fn)
    for n in (5, 7, 2):
        args = (rand(n, 3), rand(3, 4), rand(n, 4))
        expected_args = [a.clone() for a in args]
        expected = fn(*expected_args)
        result = compiled(*args)
        torch.testing.assert_close((result, *args), (expected, *expected_args))
        assert result.untyped_storage().data_ptr() != args[2].untyped_storage().data_ptr()
    assert len(compiled.programs) == 1
