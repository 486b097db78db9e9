"""The sparse model: many features, each with 0, 1 or 2 ids a row. anyshape beside eager and stock torch, in one run.

Nearly every call has a combination of sizes that never came before. Printed are programs, wrong results (forward and
gradients, against eager), and the CPU time of a call whose sizes are new and of the same call made again; then what a
first call takes, each in a process of its own that has compiled something small before. Stock runs `dynamic=True`, and
fewer calls, for it compiles at most of them.

usage: sparse.py [--features 100] [--kinds embedding,sum] [--backends aot_eager,inductor] [--calls 500]
                 [--stock-calls 8] [--first 5,10,30,100,300] [--rounds 1] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import warnings
from typing import Any

import torch
from torch import nn

import anyshape

IDS, WIDTH, BATCHES = 10, 4, (1, 2, 3, 7)
KINDS = ("embedding", "sum", "mean", "max")
AFTER = 20  # calls after which there should be nothing left to learn


class Sparse(nn.Module):
    """A table a feature, what is found pooled, and a layer over all of it."""

    def __init__(self, features: int, kind: str) -> None:
        super().__init__()
        self.kind = kind
        table = nn.Embedding if kind == "embedding" else lambda ids, width: nn.EmbeddingBag(ids, width, mode=kind)
        self.tables = nn.ModuleList(table(IDS, WIDTH) for _ in range(features))
        self.top = nn.Linear(features * WIDTH, 1)

    def forward(self, ids: list[torch.Tensor], starts: list[torch.Tensor]) -> torch.Tensor:
        if self.kind == "embedding":
            found = [table(i).sum(1) for table, i in zip(self.tables, ids, strict=True)]
        else:
            found = [table(i, s) for table, i, s in zip(self.tables, ids, starts, strict=True)]
        return self.top(torch.cat(found, 1))


def call_of(kind: str, features: int, batch: int, drawn: torch.Generator) -> tuple[Any, Any]:
    """Ids for each feature: for bags 0, 1 or 2 for every row, else as many for all rows."""
    ids, starts = [], []
    for _ in range(features):
        counts = torch.randint(0, 3, (batch,), generator=drawn)
        if kind == "embedding":
            ids.append(torch.randint(0, IDS, (batch, int(counts[0])), generator=drawn))
        else:
            ids.append(torch.randint(0, IDS, (int(counts.sum()),), generator=drawn))
            starts.append(counts.cumsum(0) - counts)
    return ids, starts


def thread_ms(f: Any, args: Any) -> tuple[float, torch.Tensor]:
    began = time.thread_time()
    result = f(*args)
    return 1e3 * (time.thread_time() - began), result


def gradients(model: nn.Module, result: torch.Tensor) -> list[torch.Tensor]:
    weight = torch.arange(1.0, 1.0 + result.numel()).view(result.shape)
    return list(torch.autograd.grad((result * weight).sum(), list(model.parameters())))


def differs(got: Any, wanted: Any) -> bool:
    pairs = zip(got, wanted, strict=True)
    return not all(torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True) for a, b in pairs)


def graphs() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def calls(way: str, kind: str, features: int, backend: str, count: int) -> dict[str, Any]:
    """The figures of calls that are always new."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    model, drawn = Sparse(features, kind), torch.Generator().manual_seed(1)
    stock = way == "stock"
    f = torch.compile(model, backend=backend, dynamic=True) if stock else anyshape.compile(model, backend=backend)
    new, seen, eager, wrong, first = [], [], [], 0, 0.0
    for number in range(count):
        args = call_of(kind, features, BATCHES[number % len(BATCHES)], drawn)
        took, got = thread_ms(f, args)
        plain, wanted = thread_ms(model, args)
        wrong += differs([got, *gradients(model, got)], [wanted, *gradients(model, wanted)])
        again, _ = thread_ms(f, args)
        first = first or took
        if number >= min(AFTER, count - 1):
            new.append(took), seen.append(again), eager.append(plain)
    middle = statistics.median
    return {
        "way": way,
        "kind": kind,
        "features": features,
        "backend": backend,
        "calls": count,
        "programs": graphs() if stock else len(f.programs),
        "fallbacks": 0 if stock else sum(f.fallbacks.values()),
        "wrong": wrong,
        "first s": first / 1e3,
        "new ms": middle(new),
        "seen ms": middle(seen),
        "eager ms": middle(eager),
    }


def first_call(way: str, kind: str, features: int, backend: str) -> float:
    """CPU seconds of the first call, in this process; what torch loads when it first compiles is loaded before."""
    small = lambda x: x + 1
    wrap = lambda f: (
        torch.compile(f, backend=backend, dynamic=True) if way == "stock" else anyshape.compile(f, backend=backend)
    )
    wrap(small)(torch.ones(3))
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, drawn = Sparse(features, kind), torch.Generator().manual_seed(1)
    f, args = wrap(model), call_of(kind, features, 3, drawn)
    began = time.process_time()
    f(*args)
    return time.process_time() - began


def in_a_process(*arguments: str) -> float:
    ran = subprocess.run([sys.executable, __file__, *arguments], check=True, capture_output=True, text=True)
    return float(ran.stdout.splitlines()[-1])


def first_calls(kinds: list[str], counts: list[int], rounds: int) -> list[dict[str, Any]]:
    """Ways in turn, each the best of some processes: what else the machine does hits all alike."""
    rows = []
    for kind in kinds:
        print(f"\nfirst call, {kind}, aot_eager: CPU s\n{'features':>8} {'stock':>8} {'anyshape':>8} {'ratio':>6}")
        for features in counts:
            best = {"stock": float("inf"), "anyshape": float("inf")}
            for _ in range(rounds):
                for way in best:
                    given = ("--only-first", way, "--kinds", kind, "--features", str(features))
                    best[way] = min(best[way], in_a_process(*given))
            rows.append({"kind": kind, "features": features, **best})
            ratio = best["anyshape"] / best["stock"]
            print(f"{features:8} {best['stock']:8.2f} {best['anyshape']:8.2f} {ratio:6.2f}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--kinds", default="embedding,sum")
    parser.add_argument("--backends", default="aot_eager,inductor")
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--stock-calls", type=int, default=8)
    parser.add_argument("--first", default="5,10,30,100,300")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only-first", choices=("stock", "anyshape"), help=argparse.SUPPRESS)
    parser.add_argument("--json")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    kinds = options.kinds.split(",")
    if options.only_first:
        print(first_call(options.only_first, kinds[0], options.features, "aot_eager"))
        return
    rows = []
    print(f"{'':9} {'':9} {'':9} {'calls':>5} {'graphs':>6} {'eager':>5} {'wrong':>5} {'first s':>8} ", end="")
    print(f"{'new ms':>8} {'seen ms':>8} {'eager ms':>8}  new/seen")
    for backend in [b for b in options.backends.split(",") if b]:
        for kind in kinds:
            for way, count in (("stock", options.stock_calls), ("anyshape", options.calls)):
                if not count:
                    continue
                row = calls(way, kind, options.features, backend, count)
                rows.append(row)
                left = (
                    f"{way:9} {kind:9} {backend:9} {count:5} {row['programs']:6} {row['fallbacks']:5} {row['wrong']:5}"
                )
                times = f"{row['first s']:8.2f} {row['new ms']:8.2f} {row['seen ms']:8.2f} {row['eager ms']:8.2f}"
                print(f"{left} {times}  {row['new ms'] / row['seen ms']:8.2f}", flush=True)
    first = first_calls(kinds, [int(n) for n in options.first.split(",") if n], options.rounds)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"calls": rows, "first": first}, file, indent=1)


if __name__ == "__main__":
    main()
