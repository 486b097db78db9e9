"""Every operator of torch's own database, over sizes.

Owns the sweep: which samples, dtypes and layouts, with `out=` and with gradients, and the totals.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from anyshape import compiler, testing
from anyshape._torch.comparison import opinfo, stock
from anyshape._torch.runtime import trees
from anyshape.errors import NotCompilableError
from anyshape.fuzz.oracle import Target

DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64)
LAYOUTS = ("contiguous", "transposed", "sliced")
SIZES = (3, 7, 2, 1, 0)
SAMPLES = 2  # of each operator and dtype
# Over one dim eager gives back the buffer as it was (see unwritten-buffers in docs/reference/known-torch-bugs.md).
_UNWRITTEN = ("fft_ihfft2", "fft_ihfftn")
# Its database seeds inside the call, which stock torch does not capture (see other-random-numbers there).
_OTHER_NUMBERS = ("normal_in_place",)
# The process dies of its gradient, of nothing, in eager (see gradients-of-no-distances there).
_NO_GRADIENT = ("nn_functional_pdist",)


@dataclasses.dataclass(frozen=True)
class Row:
    """One sample of one operator over the sizes."""

    op: str
    dtype: str
    layout: str
    out: bool
    calls: int
    programs: int
    fallbacks: int
    differences: tuple[str, ...]
    torchs: tuple[str, ...] = ()  # differences that static compilation shows too

    def json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def names(only: str | None, shard: tuple[int, int]) -> list[str]:
    """The operators of a shard."""
    known = opinfo.operators()
    if only is not None:
        unknown = [n for n in only.split(",") if n not in known]
        if unknown:
            raise NotCompilableError(
                f"torch's database has no operator {unknown[0]!r}", value=unknown[0], fix="--only add", code="AS007"
            )
        return only.split(",")
    return [n for i, n in enumerate(known) if i % shard[1] == shard[0]]


def sweep(name: str, target: Target, *, dtypes: Sequence[torch.dtype] = DTYPES, most: int = SAMPLES) -> list[Row]:
    """Every sample of an operator: all dtypes contiguous, the first one in every layout, with `out=` and gradients."""
    op = opinfo.operators()[name]
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        usable = [d for d in dtypes if opinfo.supports(op, d)]
        for dtype in usable:
            for family in opinfo.samples(op, dtype, SIZES, most):
                for layout in LAYOUTS if dtype is usable[0] and name not in _OTHER_NUMBERS else LAYOUTS[:1]:
                    rows.append(_row(name, op, family, str(dtype), layout, False, target))
                if op.supports_out and dtype is usable[0] and name not in _UNWRITTEN:
                    rows.append(_row(name, op, family, str(dtype), "contiguous", True, target))
    return rows


def line(rows: Sequence[Row]) -> str:
    calls, programs = sum(r.calls for r in rows), sum(r.programs for r in rows)
    wrong, torchs = sum(bool(r.differences) for r in rows), sum(bool(r.torchs) for r in rows)
    each = programs / len(rows) if rows else 0.0
    return (
        f"{len({r.op for r in rows})} operators, {len(rows)} samples, {calls} calls, {wrong} samples differ, "
        f"{torchs} statically too, {each:.2f} programs a sample, {sum(r.fallbacks for r in rows)} calls ran eagerly"
    )


def _row(name: str, op: Any, family: Any, dtype: str, layout: str, out: bool, target: Target) -> Row:
    torch.compiler.reset()

    def fn(args: Any, kwargs: Any, buffers: Any) -> Any:
        return op.op(*args, **kwargs) if buffers is None else op.op(*args, **kwargs, out=buffers)

    differentiable = dtype in ("torch.float32", "torch.float64") and op.supports_autograd and not out
    differentiable &= name not in _NO_GRADIENT
    made = _compiled(fn, target)
    differences: list[str] = []
    torchs: list[str] = []
    calls = 0
    with stock.measuring():
        for size, (args, kwargs) in family.items():
            given = testing.laid_out((args, kwargs), layout)
            if differentiable:
                given = trees.map_leaves(_with_grad, given)
            buffers = _buffers(fn, given) if out else None
            if out and buffers is None:
                continue
            calls += 1
            text = testing.difference(fn, made, (*given, buffers), backward=differentiable, rtol=1e-4, atol=1e-4)
            if text is not None:
                compare = functools.partial(testing.difference, backward=differentiable, rtol=1e-4, atol=1e-4)
                static = torch.compile(fn, backend=target.backend, dynamic=False)
                is_torchs = target.compiler == "anyshape" and compare(fn, static, (*given, buffers)) is not None
                (torchs if is_torchs else differences).append(f"S={size}: {text}")
    fallbacks = sum(getattr(made, "fallbacks", {}).values())
    programs = getattr(made, "programs", ())
    count = len(programs) if isinstance(programs, tuple) else programs
    return Row(name, dtype, layout, out, calls, count, fallbacks, tuple(differences), tuple(torchs))


def _compiled(fn: Any, target: Target) -> Any:
    if target.compiler == "anyshape":
        return compiler.compile(fn, backend=target.backend)
    return torch.compile(fn, backend=target.backend, dynamic={"stock:dynamic": True}.get(target.compiler))


def _with_grad(value: Any) -> Any:
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.detach().requires_grad_() if is_float else value


def _buffers(fn: Any, given: Any) -> Any:
    """Buffers of the right shapes; None where eager has no result, does not take them or resizes them all the same."""
    try:
        result = fn(*given, None)
        if isinstance(result, torch.Tensor):
            buffers: Any = torch.empty_like(result, memory_format=torch.contiguous_format)
        elif isinstance(result, (tuple, list)) and all(isinstance(t, torch.Tensor) for t in result):
            buffers = tuple(torch.empty_like(t, memory_format=torch.contiguous_format) for t in result)
        else:
            return None
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            fn(*given, buffers)
        return None if any("was resized" in str(w.message) for w in said) else buffers
    except Exception:
        return None
