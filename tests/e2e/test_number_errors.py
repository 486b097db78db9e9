"""What Python refuses of numbers is refused by compiled code too, and a reason names the operator and the line."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape

pytestmark = pytest.mark.filterwarnings("ignore")

REFUSED: dict[str, Callable[..., Any]] = {
    "n ** -2": lambda x, n, a: n**-2,
    "x.shape[0] ** -4": lambda x, n, a: x.shape[0] ** -4,
    "(n // 5) ** -1": lambda x, n, a: (n // 5) ** -1,
    "a ** -1": lambda x, n, a: a**-1,
    "asin of a size": lambda x, n, a: math.asin(float(x.numel())),
    "log2 of a size": lambda x, n, a: math.log2(x.shape[0]),
}
CALLS = [(4, 5, 0.5), (0, 0, 0.0), (1, 7, -2.0), (3, -3, 1.5)]


def outcome(f: Callable[..., Any], rows: int, n: int, a: float) -> Any:
    try:
        return f(torch.ones(rows, 2), n, a)[1]
    except (ValueError, ArithmeticError) as error:
        return type(error)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_python_refuses_is_refused(name: str, backend: str) -> None:
    number = REFUSED[name]

    def f(x: torch.Tensor, n: int, a: float) -> Any:
        return x + 1, number(x, n, a)

    made = anyshape.compile(f, backend=backend)
    for call in CALLS:
        assert outcome(made, *call) == outcome(f, *call)


def test_a_number_out_of_the_data_keeps_the_sign_of_a_zero() -> None:
    def f(x: torch.Tensor, y: torch.Tensor, c: float) -> float:
        return (y.item() / x.shape[1]) * c

    made = anyshape.compile(f, backend="aot_eager")
    assert math.copysign(1, made(torch.ones(3, 7), torch.tensor(-1), 0.0)) == -1


def test_a_reason_names_what_fails_and_where() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x @ y

    made = anyshape.compile(f, backend="aot_eager")
    with pytest.raises(RuntimeError):
        made(torch.ones(2, 3), torch.ones(2, 3))
    (reason,) = made.fallbacks
    assert "matmul" in reason
    assert f"{__file__}:{f.__code__.co_firstlineno + 1}" in reason
