"""Peak GPU memory of calls with `out=`: eager beside anyshape with Inductor, by the allocator's own statistics.

A compiled call that made its result first and copied it would need the result's bytes once more. Both are measured on
the same buffers after one call that is not counted (workspaces of cuBLAS and cuSOLVER are taken then). `requested` is
what was asked of the allocator, `allocated` the blocks that it gave, which it may round up.

usage: out_memory.py [--sizes 256,999,1] [--json FILE]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

import anyshape


def _empty(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, device="cuda")


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda")


def _positive(n: int) -> torch.Tensor:
    a = _random(n, 64, 64)
    return a @ a.mT + 64 * torch.eye(64, device="cuda")


OPS: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "mm": (lambda a, b, o: torch.mm(a, b, out=o), lambda n: (_random(n, 512), _random(512, 1024), _empty(n, 1024))),
    "bmm": (
        lambda a, b, o: torch.bmm(a, b, out=o),
        lambda n: (_random(n, 64, 32), _random(n, 32, 128), _empty(n, 64, 128)),
    ),
    "addmm": (
        lambda c, a, b, o: torch.addmm(c, a, b, out=o),
        lambda n: (_random(n, 1024), _random(n, 512), _random(512, 1024), _empty(n, 1024)),
    ),
    "cholesky": (lambda a, o: torch.linalg.cholesky(a, out=o), lambda n: (_positive(n), _empty(n, 64, 64))),
    "topk": (
        lambda a, v, i: torch.topk(a, 100, out=(v, i)),
        lambda n: (_random(n, 4096), _empty(n, 100), _empty(n, 100, dtype=torch.long)),
    ),
    "sum": (lambda a, o: torch.sum(a, 0, out=o), lambda n: (_random(n, 65536), _empty(65536))),
    "max": (
        lambda a, v, i: torch.max(a, 1, out=(v, i)),
        lambda n: (_random(n, 4096), _empty(n), _empty(n, dtype=torch.long)),
    ),
    "norm": (lambda a, o: torch.linalg.norm(a, dim=1, out=o), lambda n: (_random(n, 4096), _empty(n))),
    "add": (lambda a, b, o: torch.add(a, b, out=o), lambda n: (_random(n, 4096), _random(n, 4096), _empty(n, 4096))),
}


@dataclasses.dataclass(frozen=True)
class Row:
    op: str
    size: int
    programs: int
    eager_requested: int
    anyshape_requested: int
    eager_allocated: int
    anyshape_allocated: int


def _peaks(fn: Any, args: Sequence[Any]) -> tuple[int, int]:
    """Bytes requested and allocated at the highest over what stood before the call."""
    fn(*args)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()
    fn(*args)
    torch.cuda.synchronize()
    after = torch.cuda.memory_stats()
    requested, allocated = "requested_bytes.all", "allocated_bytes.all"
    return tuple(after[f"{kind}.peak"] - before[f"{kind}.current"] for kind in (requested, allocated))  # type: ignore[return-value]


def measure(op: str, sizes: Sequence[int]) -> list[Row]:
    fn, make = OPS[op]
    compiled = anyshape.compile(fn, specialize="never")
    rows = []
    for size in sizes:
        args = make(size)
        eager, mine = _peaks(fn, args), _peaks(compiled, args)
        rows.append(Row(op, size, len(compiled.programs), eager[0], mine[0], eager[1], mine[1]))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="256,999,1")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("out_memory.py needs a GPU: the CPU's allocator keeps no statistics")
    sizes = [int(n) for n in options.sizes.split(",")]
    rows = [row for op in OPS for row in measure(op, sizes)]
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    heads = f"{'requested: eager':>18}{'anyshape':>12}{'allocated: eager':>18}{'anyshape':>12}"
    print(f"{'op':<10}{'size':>6}{'programs':>10}{heads}")
    for r in rows:
        print(
            f"{r.op:<10}{r.size:>6}{r.programs:>10}{r.eager_requested:>18,}{r.anyshape_requested:>12,}"
            f"{r.eager_allocated:>18,}{r.anyshape_allocated:>12,}"
        )
    if options.json:
        with open(options.json, "w") as file:
            json.dump([dataclasses.asdict(r) for r in rows], file, indent=1)


if __name__ == "__main__":
    main()
