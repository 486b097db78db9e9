"""What people read when a size may not be asked about."""

from __future__ import annotations

import inspect

import pytest
import torch

import anyshape


def branch(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 8:
        return x + 1
    return x


def line_of(text: str) -> str:
    lines, first = inspect.getsourcelines(inspect.getmodule(line_of))
    number = next(i for i, line in enumerate(lines, first or 1) if line.strip() == text)
    return f"{__file__}:{number}"


def test_a_branch_shows_its_line_and_three_ways_out() -> None:
    f = anyshape.compile(branch, semantics="oblivious", backend="eager")
    with pytest.raises(anyshape.BranchError) as caught:
        f(torch.randn(4))
    assert str(caught.value) == (
        "AS024: your code asks x.shape[0] > 8, and oblivious semantics may not answer\n"
        f"  where: {line_of('if x.shape[0] > 8:')}\n"
        "           if x.shape[0] > 8:\n"
        '  fix:   shapes={"x": "n ..."}, where=["n > 8"]  if that always holds\n'
        "         torch.cond(pred, yes, no, args)         both ways in one program\n"
        '         semantics="eager"                       a program for each way; or on_branch="break"\n'
        "  more:  python -m anyshape help AS024"
    )


def test_the_ways_out_work() -> None:
    x, y = torch.zeros(9), torch.zeros(4)
    words = {"semantics": "oblivious", "backend": "eager"}
    declared = anyshape.compile(branch, shapes={"x": "n ..."}, where=["n > 8"], **words)
    assert torch.equal(declared(x), branch(x)) and len(declared.programs) == 1
    eager = anyshape.compile(branch, backend="eager")
    assert torch.equal(eager(x), branch(x)) and torch.equal(eager(y), branch(y))
    broken = anyshape.compile(branch, on_branch="break", **words)
    assert torch.equal(broken(x), branch(x)) and torch.equal(broken(y), branch(y))


def test_a_size_that_is_needed_as_a_number() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return sum([x] * x.shape[0])  # type: ignore[return-value]

    f = anyshape.compile(fn, semantics="oblivious", backend="eager")
    with pytest.raises(anyshape.BranchError, match=r"needs the value of x.shape\[0\]|asks"):
        f(torch.randn(3))


def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a + b


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_an_assumption_names_the_line_and_the_sizes(backend: str) -> None:
    f = anyshape.compile(add, semantics="oblivious", backend=backend)
    assert torch.equal(f(torch.ones(4), torch.ones(4)), torch.full((4,), 2.0))
    assert f.programs[0].assertions == ("a.shape[0] == b.shape[0]",) and f.programs[0].predicates == ()
    with pytest.raises(anyshape.AssumptionError) as caught:
        f(torch.ones(4), torch.ones(1))
    text = str(caught.value)
    assert text.startswith("AS023: a.shape[0] == b.shape[0] does not hold, and the program assumes it\n")
    assert line_of("return a + b") in text and "           return a + b\n" in text
    assert "a.shape[0] = 4" in text and "b.shape[0] = 1" in text
