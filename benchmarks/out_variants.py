"""The ops of pytorch/pytorch#135859 with `out=` over many sizes: anyshape beside stock torch, in one run.

Prints for each op and each way to compile it: programs, total seconds of the sweep, seconds of the first call, and
microseconds of a call once every size has been seen. Where `mark_unbacked` falls back to eager it has 0 programs.

usage: out_variants.py [--backend inductor] [--sizes 100] [--ops topk,bmm] [--ways anyshape,auto] [--json FILE]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import statistics
import time
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache

import anyshape

K = 10


def topk(x: torch.Tensor, values: torch.Tensor, indices: torch.Tensor) -> Any:
    return torch.topk(x, K, out=(values, indices))


def bmm(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Any:
    return torch.bmm(a, b, out=out)


def cholesky(a: torch.Tensor, out: torch.Tensor) -> Any:
    return torch.linalg.cholesky(a, out=out)


def norm(a: torch.Tensor, out: torch.Tensor) -> Any:
    return torch.linalg.norm(a, dim=1, out=out)


def max_(a: torch.Tensor, values: torch.Tensor, indices: torch.Tensor) -> Any:
    return torch.max(a, 1, out=(values, indices))


def _each(make: Callable[[int], tuple[Any, ...]]) -> Callable[[Sequence[int]], list[tuple[Any, ...]]]:
    return lambda sizes: [make(n) for n in sizes]


def _topk_calls(sizes: Sequence[int]) -> list[tuple[Any, ...]]:
    """The result's shape stays: one pair of buffers for all calls."""
    values, indices = torch.empty(K), torch.empty(K, dtype=torch.long)
    return [(torch.randperm(n).float(), values, indices) for n in sizes]


# Each with what makes the calls of a sweep.
OPS: dict[str, tuple[Callable[..., Any], Callable[[Sequence[int]], list[tuple[Any, ...]]]]] = {
    "topk": (topk, _topk_calls),
    "bmm": (bmm, _each(lambda n: (torch.randn(n, 3, 4), torch.randn(n, 4, 5), torch.empty(n, 3, 5)))),
    "cholesky": (cholesky, _each(lambda n: (torch.eye(4).repeat(n, 1, 1) * 2, torch.empty(n, 4, 4)))),
    "norm": (norm, _each(lambda n: (torch.randn(n, 7), torch.empty(n)))),
    "max": (max_, _each(lambda n: (torch.randn(n, 7), torch.empty(n), torch.empty(n, dtype=torch.long)))),
}


@dataclasses.dataclass(frozen=True)
class Row:
    op: str
    way: str
    programs: int
    total_seconds: float
    first_call_seconds: float
    steady_microseconds: float
    wrong: int


def _mark(calls: Sequence[tuple[torch.Tensor, ...]]) -> None:
    for t in {id(t): t for args in calls for t in args}.values():
        for d in range(t.dim()):
            torch._dynamo.decorators.mark_unbacked(t, d)


def _compile(fn: Any, way: str, backend: str) -> Any:
    if way == "anyshape":
        return anyshape.compile(fn, backend=backend)
    return torch.compile(fn, backend=backend, dynamic=True if way == "dynamic=True" else None)


def measure(op: str, ways: Sequence[str], sizes: Sequence[int], backend: str) -> list[Row]:
    fn, make = OPS[op]
    torch._dynamo.reset()
    torch.manual_seed(0)
    compiled = {way: _compile(_copy(fn, f"{op}_{i}"), way, backend) for i, way in enumerate(ways)}
    calls = {way: make(sizes) for way in ways}
    _mark(calls.get("mark_unbacked", ()))
    swept = {way: _sweep(fn, compiled[way], way, calls[way]) for way in ways}
    steady = _steady({way: (compiled[way], calls[way][-1]) for way in ways})
    return [Row(op, way, *swept[way][:3], 1e6 * steady[way], swept[way][3]) for way in ways]


def _copy(fn: Any, name: str) -> Any:
    """The same function with code of its own, so that programs of one way are not another's."""
    return types.FunctionType(fn.__code__.replace(co_name=name), fn.__globals__, name)


def _sweep(fn: Any, compiled: Any, way: str, calls: Sequence[tuple[Any, ...]]) -> tuple[int, float, float, int]:
    """Programs, seconds of all calls, seconds of the first, and how many were wrong."""
    wrong, seconds = 0, []
    counters.clear()
    with fresh_cache():
        for args in calls:
            began = time.perf_counter()
            compiled(*args)
            seconds.append(time.perf_counter() - began)
            expected = [a.clone() for a in args]
            fn(*expected)
            wrong += not all(torch.allclose(a, b, equal_nan=True) for a, b in zip(args, expected, strict=True))
        programs = len(compiled.programs) if way == "anyshape" else counters["stats"].get("unique_graphs", 0)
    return programs, sum(seconds), seconds[0], wrong


def _steady(ways: dict[str, tuple[Any, tuple[Any, ...]]], turns: int = 15, calls: int = 300) -> dict[str, float]:
    """The median over turns, in which each way has its own, of the seconds a call takes."""
    runs: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(turns):
        for way, (f, args) in ways.items():
            began = time.perf_counter()
            for _ in range(calls):
                f(*args)
            runs[way].append((time.perf_counter() - began) / calls)
            if way == "anyshape":
                f.wait()  # for a variant of this size that is being compiled beside: the next turns run it
    return {way: statistics.median(times) for way, times in runs.items()}


def report(rows: Sequence[Row]) -> str:
    heads = f"{'programs':>9}{'total s':>10}{'first s':>10}{'steady us':>11}{'wrong':>7}"
    lines = [f"{'op':<10}{'compiled with':<16}{heads}"]
    for r in rows:
        lines.append(
            f"{r.op:<10}{r.way:<16}{r.programs:>9}{r.total_seconds:>10.3f}{r.first_call_seconds:>10.3f}"
            f"{r.steady_microseconds:>11.1f}{r.wrong:>7}"
        )
    for op in dict.fromkeys(r.op for r in rows):
        by = {r.way: r for r in rows if r.op == op}
        mine, auto, dynamic = by.get("anyshape"), by.get("auto"), by.get("dynamic=True")
        if mine and auto:
            lines.append(f"{op}: {auto.total_seconds / mine.total_seconds:.1f} times less total time than stock auto")
        if mine and dynamic:
            ratio = mine.steady_microseconds / dynamic.steady_microseconds
            lines.append(f"{op}: steady state {ratio:.2f} of stock dynamic=True")
    return "\n".join(lines)


WAYS = ("anyshape", "auto", "dynamic=True", "mark_unbacked")


def main(argv: Sequence[str] | None = None) -> list[Row]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--sizes", type=int, default=100, help="how many sizes, from 100 on")
    parser.add_argument("--ops", default=",".join(OPS))
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args(argv)
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    # As many compiles as stock wants; its default limit would end in eager and hide them.
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 10_000
    sizes = range(100, 100 + options.sizes)
    _warm_up(options.backend)
    ops, ways = options.ops.split(","), options.ways.split(",")
    rows = [row for op in ops for row in measure(op, ways, sizes, options.backend)]
    print(f"torch {torch.__version__}, {options.backend}, sizes {sizes[0]} to {sizes[-1]}\n{report(rows)}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"torch": torch.__version__, "rows": [dataclasses.asdict(r) for r in rows]}, file, indent=1)
    return rows


def _warm_up(backend: str) -> None:
    """Imports and the compiler's own first use are nobody's price."""
    for way in ("anyshape", "auto"):
        with fresh_cache():
            _compile(lambda x: x + 1, way, backend)(torch.ones(3))
    torch._dynamo.reset()


if __name__ == "__main__":
    main()
