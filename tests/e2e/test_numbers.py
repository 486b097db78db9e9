"""Python numbers are what they are in eager: values, types, signs of zeros and exceptions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
from torch._inductor.codegen.common import PythonPrinter
from torch._inductor.utils import fresh_inductor_cache
from torch.utils._sympy.functions import FloorDiv, Max, Min, PythonMod

import anyshape
from anyshape._torch.repairs import registry
from anyshape.fuzz import scalar_oracle, scalars
from anyshape.fuzz.oracle import Target


def quarters_of_a_length(x: Any) -> Any:
    return x[((x.shape[0] // 4) // -2) % 3 :], (x.shape[0] // 4) // -2


def quotients(x: Any, n: Any) -> Any:
    return x + 1, n // x.shape[0], n % x.shape[0], divmod(7, n), 7 / n


def caught(x: Any, n: Any) -> Any:
    try:
        z = 7 // n
    except ZeroDivisionError:
        z = -99
    return x + z


def contained(x: Any, n: Any) -> Any:
    return 2 in x.shape, 0 in [n, 2], x * 2 if n in [x.shape[0], 7] else x + 100


def rounded(x: Any, n: Any) -> Any:
    return round(x.shape[0], -1), round(n, -1), round(n, None), round(n, 2), x + 1


def greatest(x: Any, a: Any) -> Any:
    return max(a, x.shape[0]), min(x.shape[0], a), max(a, 0.0), min(0.0, a), x + 1


def signs(x: Any, a: Any) -> Any:
    return math.copysign(1.0, a), torch.copysign(x, a), 1 / (x * a)


def floored(x: Any, a: Any) -> Any:
    return x.shape[0] // a, x.shape[0] % a, a // -3.0, x + 1


def texts(x: Any, n: Any) -> Any:
    return f"{n}", f"{n:05d} of {x.shape[0]}", f"{n!r:>5}", x + 1


def large(x: Any, n: Any) -> Any:
    return x * (n * n), n * n, n / 3, n / (n * n + 1)


def tensors_divided(x: Any, n: Any) -> Any:
    return torch.arange(4) // n, torch.arange(4) % n, x // max(x.shape[0], 1)


def rolled(x: Any, n: Any) -> Any:
    return torch.roll(x, n)


def summed(x: Any, a: Any) -> Any:
    return a + 1e16 - 1e16, x * (a + 1e16 - 1e16), -(a * 3) / 7


def made(x: Any, a: Any) -> Any:
    return torch.tensor(a) + x


def infinite(x: Any, a: Any) -> Any:
    return torch.view_as_real(x * complex(a, -a))


def powers(x: Any, n: Any) -> Any:
    return x + 1, (-2) ** n, x * (-3) ** n, (-2.0) ** x, -(2**n)


def itself(x: Any, a: Any) -> Any:
    return x * a if a == a else x - 1


def beyond_float32(x: Any, n: Any) -> Any:
    return n * 0.5, x.double() * (n * 0.5 + 0.25), float(n) + 0.25, torch.full((2,), n / 4, dtype=torch.float64)


def remainders(x: Any, n: Any) -> Any:
    return x * (n % 3 * 0.5), (n % 7) / 4 + x.double(), ~n, x + ~x.shape[0]


def in_ranges(x: Any, n: Any) -> Any:
    return x + 1, n in range(3), n not in range(9, 0, -2), 3 in range(n % 7), n / 2 in range(9), 4 in range(0, 10, 3)


def complex_equals(x: Any, n: Any) -> Any:
    return x + 1, n == 2 + 0j, complex(n) != n, x.shape[0] == 3 + 0j


def shifted(x: Any, n: Any) -> Any:
    try:
        y = 1 << n if n < 90 else 0
    except ValueError as error:
        y = str(error)
    return x + 1, y, 100 >> n % 5


def with_constants_of_dicts(x: Any, n: Any) -> Any:
    return x + 1, max(n, 1, 2, key=lambda m: -m), {"n": n}, slice(0, n)


def angles(x: Any, a: Any) -> Any:
    return x + 1, math.sin(a), math.tan(a), math.cosh(a)


def arcs(x: Any, a: Any) -> Any:
    return x + 1, math.asin(a), math.sqrt(a * 3), math.log2(a)


def with_sizes(x: Any, a: Any) -> Any:
    size = x.shape[0]
    return x + 1, size * a, a - size, -size * a, size + a, x.numel() / (a or 1.0)


def out_of_the_data(x: Any, a: Any) -> Any:
    y, n = (x.sum() * a).item(), x.sum().int().item()
    return x * y, y, -y, y / 4, math.sqrt(abs(y)), n // 2, n * 0.5, y * a + 1e16 - 1e16


def rounded_floats(x: Any, a: Any) -> Any:
    return x + 1, math.floor(a) * 0.5, int(a) * 0.25, x * (round(a) / 2), math.ceil(a) // 3 * 0.5


def given_large(x: Any, n: Any) -> Any:
    return x.roll(n, 0), torch.vander(x, n)


def lengths(*sizes: int) -> list[tuple[Any, ...]]:
    return [(torch.arange(float(n)),) for n in sizes]


def numbers(*numbers: Any, size: int = 3) -> list[tuple[Any, ...]]:
    return [(torch.arange(float(size)) + 1, n) for n in numbers]


CASES: list[tuple[Callable[..., Any], list[tuple[Any, ...]]]] = [
    (quarters_of_a_length, lengths(4, 3, 1, 7, 5, 9)),
    (quotients, [*numbers(5, -3, 0), (torch.zeros(0), 7), *numbers(2**40)]),
    (caught, numbers(2, 5, 0, -3)),
    (contained, [(torch.ones(s, 3), n) for s, n in ((4, 2), (2, 0), (1, 7), (0, 0), (3, 3))]),
    (rounded, [(torch.ones(s), n) for s, n in ((4, 15), (6, -25), (12, 5), (1, -5), (17, 0), (25, 104))]),
    (greatest, numbers(0.5, 7.5, 0.0, 3.0, -0.0)),
    (signs, numbers(0.5, 0.0, -0.0, 2.0, -3.0)),
    (floored, numbers(-3.0, 0.5, 0.0, -0.0, 2.0)),
    (texts, [*numbers(2), *numbers(-5, size=4)]),
    (large, numbers(5, -3, 2**31, 2**40, 2**53 + 1, 2**62)),
    (tensors_divided, numbers(2, 7, -3, 0)),
    (rolled, numbers(2, True, -1)),
    (summed, numbers(2.0, 0.5, -1.5)),
    (made, numbers(2.0, 1e300, math.inf)),
    (powers, numbers(2, 3, 0, 6)),
    (itself, numbers(0.5, math.nan, -1.5, math.inf)),
    (infinite, numbers(0.5, math.inf, math.nan, 2.0)),
    (beyond_float32, numbers(2, 2**24 + 1, -(2**31) - 3, 2**40 + 1, 2**53 - 1)),
    (remainders, numbers(2, -7, 0, 2**24 + 1, True)),
    (in_ranges, numbers(2, 5, True, -3, 0, 2**53 + 1)),
    (complex_equals, numbers(2, 5, True, 2**53 + 1)),
    (shifted, numbers(2, 5, -3, 0, -1)),
    (with_constants_of_dicts, numbers(2, 5, True, 2**53 + 1)),
    (angles, numbers(0.5, 2.0, math.inf, -1.5, 1e300, math.nan, 0.0)),
    (arcs, numbers(0.5, 1.0, 2.0, -0.5, 0.0, math.nan)),
    (with_sizes, [*numbers(0.5, -0.0, math.inf, math.nan), *numbers(-0.0, math.inf, size=0)]),
    (out_of_the_data, [*numbers(0.5, 2.0, -1.5), (torch.zeros(2), -1.5)]),
    (rounded_floats, numbers(0.5, -2.5, 1e300, 1e19, 3.0)),
    (given_large, numbers(2, True, 2**70)),
]


@pytest.mark.parametrize(("function", "calls"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_numbers_are_eagers(function: Callable[..., Any], calls: list[tuple[Any, ...]]) -> None:
    compiled = anyshape.compile(function, backend="aot_eager")
    for arguments in calls:
        want, got = _outcome(function, arguments), _outcome(compiled, arguments)
        assert scalar_oracle.difference_of(want, got) is None, arguments[1:]


@pytest.mark.parametrize(
    ("function", "calls", "most"),
    [
        (texts, [*numbers(2), *numbers(-5, size=4)], 1),
        (rounded, [(torch.ones(s), n) for s, n in ((4, 15), (6, -25), (12, 5), (17, 0))], 1),
        (tensors_divided, numbers(2, 7, -3), 1),
        (beyond_float32, numbers(2, 2**24 + 1, -(2**31) - 3), 1),
        (remainders, numbers(2, -7, 0, 2**24 + 1), 1),
        (angles, numbers(0.5, 2.0, -1.5, 0.0), 1),
        (arcs, numbers(0.5, 1.0, 0.25), 1),
        (shifted, numbers(2, 5, 0), 1),
        (out_of_the_data, numbers(0.5, 2.0, 1.5), 1),
    ],
)
def test_numbers_are_one_program(function: Any, calls: Any, most: int) -> None:
    compiled = anyshape.compile(function, backend="aot_eager")
    for arguments in calls:
        compiled(*arguments)
    assert len(compiled.programs) <= most
    assert not compiled.fallbacks


@pytest.mark.parametrize("function", [rounded, complex_equals])
def test_what_stock_has_compiled_before_is_not_used(function: Any) -> None:
    torch.compiler.reset()
    arguments = numbers(12)[0]
    stock = torch.compile(function, backend="eager", dynamic=True)
    before = _outcome(stock, arguments)
    compiled = anyshape.compile(function, backend="eager")
    for given in (*numbers(15, size=4), *numbers(7, size=5)):
        assert scalar_oracle.difference_of(_outcome(function, given), _outcome(compiled, given)) is None
    assert not compiled.fallbacks
    torch.compiler.reset()
    assert repr(_outcome(torch.compile(function, backend="eager", dynamic=True), arguments)) == repr(before)


def test_a_call_that_nobody_counts_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    program = next(scalars.programs(0, 0, 1))
    monkeypatch.setattr(scalar_oracle, "_compiled", lambda fn, target: _Uncounted(fn))
    assert "none is counted" in str(scalar_oracle.difference(program, Target()))


class _Uncounted:
    programs = fallbacks = ()

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)


def _outcome(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        return error


def cut(x: Any, n: Any) -> Any:
    return x[: 10 // n] + 1, 7 // n


def test_generated_code_divides_by_negative_numbers() -> None:
    compiled = anyshape.compile(cut)
    for arguments in numbers(3, -2, -1, -20, size=12):
        assert scalar_oracle.difference_of(cut(*arguments), compiled(*arguments)) is None
    with pytest.raises(ZeroDivisionError):
        compiled(torch.ones(12), 0)


def test_code_around_kernels_divides_as_python_does() -> None:
    n, m = (sympy.Symbol(name, integer=True) for name in "nm")
    with registry.only("index_divisions"):
        text = PythonPrinter().doprint(FloorDiv(n, m))
    assert [eval(text, {"n": 7, "m": by}) for by in (-2, 0, 2)] == [-4, 7, 3]


def kernels(x: Any, n: Any) -> Any:
    bits = torch.arange(3) - (n ^ 5), torch.arange(3) * (n & 3), torch.arange(3) + (n | 3)
    return *bits, torch.div(torch.arange(5) - 2, n, rounding_mode="trunc"), x.norm(300), x * complex(0, math.inf)


def test_kernels_compute_with_numbers_as_eager_does() -> None:
    compiled = anyshape.compile(kernels)
    for arguments in [(torch.full((size,), 1.5), n) for size, n in ((1, 100), (4, -3), (1, 7), (0, 2), (3, 0))]:
        want, got = _outcome(kernels, arguments), _outcome(compiled, arguments)
        if isinstance(want, tuple):
            want, got = ((*r[:-1], torch.view_as_real(r[-1])) for r in (want, got))
        assert scalar_oracle.difference_of(want, got) is None, arguments
    assert len(compiled.programs) == 1


def select(x: Any, index: Any, divisor: Any) -> Any:
    return x.index_select(0, index), torch.div(index, divisor, rounding_mode="trunc")


def test_kernels_refuse_what_eager_refuses() -> None:
    compiled = anyshape.compile(select)
    for index, divisor in ((2, 2), (-1, 2), (0, -3), (9, 2), (1, 0)):
        arguments = torch.arange(4.0), torch.tensor([index]), torch.tensor([divisor])
        assert scalar_oracle.difference_of(_outcome(select, arguments), _outcome(compiled, arguments)) is None


def fresh(x: Any, n: Any) -> Any:
    return x.new_ones((n % 7,))


def test_cached_code_is_as_guarded_as_fresh_code() -> None:
    with fresh_inductor_cache():
        for n in (7, 1, 14):  # each compiled anew, with what the others left in the cache
            torch._dynamo.reset()
            assert anyshape.compile(fresh)(torch.ones(2), n).shape == (n % 7,)


@pytest.mark.parametrize("divisor", [-3, -2, 2, 5])
def test_quotients_of_quotients(divisor: int) -> None:
    n = sympy.Symbol("n", integer=True)
    with registry.only("integer_functions"):
        nested = FloorDiv(FloorDiv(n, 4), divisor)
        remainder = PythonMod(-sympy.Symbol("p", integer=True, positive=True) - 5, divisor)
    for number in range(-30, 30):
        assert nested.xreplace({n: sympy.Integer(number)}) == (number // 4) // divisor
    for number in range(1, 20):
        (p,) = remainder.free_symbols or {n}
        assert remainder.xreplace({p: sympy.Integer(number)}) == (-number - 5) % divisor


def test_a_maximum_of_numbers_is_a_number() -> None:
    n = sympy.Symbol("n", integer=True)
    with registry.only("integer_functions"):
        parts = [Min(n, Max(2, Min(4, n))), Max(n, Min(7, Max(n, 3))), Min(n, Max(2, Min(4, n, Max(3, n))))]
    for expr in parts:
        for node in sympy.preorder_traversal(expr):
            assert sum(arg.is_Number for arg in node.args) < 2 or not isinstance(node, (Min, Max)), expr
    for number in range(-1, 9):
        k = sympy.Integer(number)
        values = [min(number, max(2, min(4, number))), max(number, min(7, max(number, 3)))]
        assert [part.xreplace({n: k}) for part in parts[:2]] == values


def test_a_loop_over_parts_of_a_batch() -> None:
    def loss(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        part, total = x.shape[0] // 2, torch.zeros(())
        for start in range(0, x.shape[0], part):
            total = total + torch.nn.functional.cross_entropy(x[start : start + part], t[start : start + part])
        return total

    f = anyshape.compile(loss, fullgraph=True)
    x, t = torch.randn(4, 8), torch.tensor([0, 7, 3, 3])
    torch.testing.assert_close(f(x, t), loss(x, t))
    assert not f.fallbacks


def test_random_programs_of_numbers() -> None:
    for number in KEPT:
        (program,) = scalars.programs(0, number, number + 1)
        assert scalar_oracle.difference(program, Target(economy=False)) is None, program.source


KEPT = (0, 24, 34)  # programs that differed once
