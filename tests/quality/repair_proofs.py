"""Programs that are right with a repair of torch, and wrong without it.

Each is named after the repair that it proves, compares with eager, and counts programs where that is what the repair is
for. Run as a script with names, this says of each, as JSON, whether it is right with its repair, and without.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

import anyshape
from anyshape._torch.repairs import registry
from anyshape._torch.repairs.scalars import symint_arithmetic

Proof = Callable[[], None]
PROOFS: dict[str, Proof] = {}
KILLS: set[str] = set()  # without these the process ends


def proof(name: str, *, kills: bool = False) -> Callable[[Proof], Proof]:
    def register(function: Proof) -> Proof:
        assert name not in PROOFS, f"{name} is proved twice"
        PROOFS[name] = function
        if kills:
            KILLS.add(name)
        return function

    return register


def compare(fn: Any, *calls: Sequence[Any], backend: str = "eager", programs: int | None = None, **options: Any) -> Any:
    """The compiled function gives what eager gives for each call, and raises where eager raises.

    `eager` for a backend counts best: with others programs that compute the same are one.
    """
    f = anyshape.compile(fn, backend=backend, **options)
    for args in calls:
        try:
            expected = fn(*copied(args))
        except Exception as error:
            try:
                f(*copied(args))
            except type(error):
                continue
            raise AssertionError(f"eager raises {type(error).__name__}") from None
        found = f(*copied(args))
        equal(found, expected)
    assert programs is None or len(f.programs) == programs, f"{len(f.programs)} programs, and not {programs}"
    assert programs is None or not f.fallbacks, f.fallbacks
    return f


def copied(args: Sequence[Any]) -> list[Any]:
    return [a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a for a in args]


def equal(found: Any, expected: Any) -> None:
    assert type(found) is type(expected), (found, expected)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, equal_nan=True)
        assert found.numel() < 2 or found.stride() == expected.stride(), (found.stride(), expected.stride())
    elif isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            equal(a, b)
    else:
        assert found == expected and str(found) == str(expected), (found, expected)


def randn(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes)))


# -- programs that multiply ----------------------------------------------------------------------------------------


@proof("cumprod_backward.cumprod_backward")
def _() -> None:
    def fn(x: Any) -> Any:
        return torch.cumprod(x, 0).sum()

    f = anyshape.compile(fn, backend="aot_eager")
    for n in (3, 5, 4):
        x, y = (randn(n).requires_grad_() for _ in range(2))
        f(x).backward()
        fn(y).backward()
        torch.testing.assert_close(x.grad, y.grad)
    assert len(f.programs) == 1 and not f.fallbacks


@proof("symint_arithmetic.constructor")
def _() -> None:
    compare(lambda x: x.mean(), *((torch.complex(randn(n), randn(n)),) for n in (3, 4, 7)), programs=1)


@proof("deferred_calls.method")
def _() -> None:
    compare(lambda x: (x + 1).unbind(), *((randn(n, 2),) for n in (3, 5, 2)), programs=1)


@proof("deferred_calls.function")
def _() -> None:
    compare(lambda x: torch.unbind(x + 1), *((randn(n, 2),) for n in (3, 5, 2)), programs=1)


@proof("dynamic_lowerings.glu")
def _() -> None:
    compare(lambda x: F.glu(x, 0), *((randn(n, 3),) for n in (4, 6, 8)), backend="inductor", programs=1)


@proof("dynamic_lowerings.adaptive_pool2d")
def _() -> None:
    calls = [(randn(1, 2, n, n + 1),) for n in (7, 9, 12)]
    compare(lambda x: F.adaptive_avg_pool2d(x, (3, 2)), *calls, backend="inductor", programs=1)


@proof("out_calls.call_function")
def _() -> None:
    def fn(x: Any, y: Any) -> Any:
        return (
            torch.topk(x, 2, out=(y, torch.empty(2, dtype=torch.int64)))[0]
            + torch.add(x, 1, out=torch.empty_like(x))[:2]
        )

    compare(fn, *((randn(n), torch.empty(2)) for n in (3, 5, 8)), programs=1)


# -- numbers -------------------------------------------------------------------------------------------------------


@proof("symint_arithmetic.min_max")
def _() -> None:
    compare(lambda x: (x + 1, max(x.shape[0], 2.0)), *((randn(n),) for n in (3, 5, 1)))


@proof("symint_arithmetic.contains")
def _() -> None:
    compare(lambda x: x + 1 if 2 in x.shape else x - 1, (randn(4, 3),), (randn(2, 3),), (randn(3, 2),))


@proof("symint_arithmetic.divmod")
def _() -> None:
    compare(lambda x: (x + 1, divmod(x.shape[0], 3)), *((randn(n),) for n in (4, 7)), fullgraph=True, programs=1)


@proof("number_members.range_count")
def _() -> None:
    compare(lambda x, n: x * 2 if n in range(3) else x, [randn(3), 2], [randn(3), 5], programs=2)


@proof("number_members.compared")
def _() -> None:
    compare(lambda x, n: (x + 1, n == 2 + 0j), [randn(3), 2], [randn(3), 3])


@proof("symint_arithmetic.inverted")
def _() -> None:
    compare(lambda x, n: (x + ~n, ~n), [randn(3), 2], [randn(3), 5], programs=1)


@proof("symint_arithmetic.with_inexpressible")
def _() -> None:
    compare(lambda x, a: (x + 1, x.shape[0] * a), [randn(3), 0.5], [randn(3), -0.0], backend="aot_eager")


@proof("int_tensors.meta_call")
def _() -> None:
    compare(lambda x, n: (x + 1, n * 0.5), [randn(3), 2], [randn(3), 2**24 + 1], backend="aot_eager", programs=1)


@proof("int_tensors.function_of_tensors")
def _() -> None:
    compare(lambda x, n: x * (n % 3 * 0.5), [randn(3), 2], [randn(3), 7], backend="aot_eager", programs=1)


@proof("float_arithmetic.method")
def _() -> None:
    compare(lambda x, a: (x + 1, a + 1e16 - 1e16), *((randn(3), a) for a in (1.5, 3.25)))


@proof("scalar_writes.remove_specialized")
def _() -> None:
    def fn(x: Any) -> Any:
        x.mul_(2)
        return torch.ones(3) * x.item()

    f = anyshape.compile(fn, backend="aot_eager")
    for value in (1.5, 2.5):
        x, y = (torch.tensor(value, dtype=torch.float64) for _ in range(2))
        equal(f(x), fn(y))
        equal(x, y)


# -- results of generated code -------------------------------------------------------------------------------------


@proof("noop_elimination_aliasing.remove_noop_ops")
def _() -> None:
    def fn(x: Any) -> Any:
        a = x + 1
        b = a.clone()
        return b, b.clone()

    b, c = anyshape.compile(fn)(randn(4))
    assert b.data_ptr() != c.data_ptr()


@proof("noop_elimination_aliasing.remove_no_ops")
def _() -> None:
    x = randn(4)
    assert anyshape.compile(lambda x: x + torch.zeros_like(x))(x).data_ptr() != x.data_ptr()


@proof("zero_products.add_peephole_patterns")
def _() -> None:
    compare(lambda x: x * 0, (torch.tensor([1.0, float("nan"), float("inf")]),), backend="inductor")


@proof("kernel_numbers.select")
def _() -> None:
    compare(lambda x, i: x.index_select(0, i), (randn(4), torch.tensor([1, -1])), backend="inductor")


@proof("kernel_numbers.norm")
def _() -> None:
    calls = [(torch.tensor([1e30]),), (torch.tensor([1.0, 2.0]),)]
    compare(lambda x: torch.linalg.vector_norm(x, 3), *calls, backend="inductor")


@proof("kernel_numbers.truncdiv", kills=True)
def _() -> None:
    calls = [(torch.arange(-4, 4), torch.tensor([2, 3, 0, 1, 1, 2, 3, 1]))]
    compare(lambda a, b: torch.div(a, b, rounding_mode="trunc"), *calls, backend="inductor")


@proof("size_choices.split")
def _() -> None:
    compare(lambda x: torch.split(x, 2)[0] + 1, *((randn(n),) for n in (2, 0, 1)), backend="inductor", programs=1)


@proof("avg_pool_backward.avg_pool_backward")
def _() -> None:
    def fn(x: Any) -> Any:
        return F.avg_pool2d(x, 2, ceil_mode=True)

    f = anyshape.compile(fn)
    x, y = (randn(1, 1, 5, 5).requires_grad_() for _ in range(2))
    f(x).sum().backward()
    fn(y).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


@proof("reinplace_hazards.mutate_to")
def _() -> None:
    def fn(x: Any, i: Any, v: Any) -> Any:
        y = x + 1
        z = y.index_copy(0, i, v)
        z[z > 0] = 1
        return z

    compare(fn, (randn(6), torch.tensor([1, 3]), torch.tensor([5.0, -5.0])), backend="inductor")


@proof("randperm_index_pattern.apply")
def _() -> None:
    f = anyshape.compile(lambda x: x[torch.randperm(x.shape[0])] + 1)
    for n in (6, 4):
        torch.testing.assert_close(f(randn(n)).sort()[0], (randn(n) + 1).sort()[0])
    assert not f.fallbacks


@proof("output_strides.visible")
def _() -> None:
    x = randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    f = anyshape.compile(lambda x: torch.hstack([x, x]))
    assert f(x).stride() == torch.hstack([x, x]).stride()


@proof("size_choices.settings")
def _() -> None:
    f = anyshape.compile(lambda x: x + torch.rand_like(x))
    torch.manual_seed(0)
    found = f(randn(5))
    torch.manual_seed(0)
    torch.testing.assert_close(found, randn(5) + torch.rand(5))


# -- running them --------------------------------------------------------------------------------------------------


def is_right(name: str) -> tuple[bool, str]:
    """Whether the program is right now; nothing that was compiled before is of use."""
    torch._dynamo.reset()
    symint_arithmetic.HANDLERS.clear()
    symint_arithmetic.binop_handlers.cache_clear()
    try:
        with torch._inductor.config.patch(fx_graph_cache=False), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            PROOFS[name]()
    except Exception as error:
        return False, f"{type(error).__name__}: {error}"[:200]
    return True, ""


def tried(name: str) -> dict[str, Any]:
    """Whether it is right with its repair, and without."""
    with_it, why = is_right(name)
    with registry.without(name):
        without, instead = is_right(name)
    return {"name": name, "with": with_it, "without": without, "why": why, "instead": instead}


if __name__ == "__main__":
    import anyshape._torch.capture.capture_scope

    for wanted in sys.argv[1:] or list(PROOFS):
        print(json.dumps(tried(wanted)), flush=True)
