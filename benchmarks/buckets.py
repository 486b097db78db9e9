"""Sizes never seen, after a warm-up on others: buckets beside stock static code and `dynamic=True`, in one run.

For each kernel: a warm-up on `--warm` sizes, then for each of `--sizes` others milliseconds of stock static code for
that very size, and as ratios to it code with buckets, anyshape's general program and stock `dynamic=True` (with
`--autotune` stock `max-autotune` static too). Then the pieces of code that were made, what making them took in first
compiles, and the longest call meanwhile. `--backward` measures forward and backward of the first kernels.

Each kernel is measured in a process of its own, with caches of its own: a first compile is one from a cold start.

usage: buckets.py [--device cuda] [--only softmax+add] [--warm 60] [--sizes 16] [--backward] [--autotune] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import kernels
import torch
import torch.nn.functional as F

import anyshape

Kernel = tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]


def softmax_add(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1) + x


def rmsnorm(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def layernorm_silu(x: torch.Tensor) -> torch.Tensor:
    return F.silu(F.layer_norm(x, x.shape[-1:]))


def logsumexp(x: torch.Tensor) -> torch.Tensor:
    return x.logsumexp(-1)


def max_exp_sum(x: torch.Tensor) -> torch.Tensor:
    return (x - x.amax(-1, keepdim=True)).exp().sum(-1)


def column_sum(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).sum(0)


def cases(device: str) -> dict[str, Kernel]:
    rows, dtype = (2048, torch.bfloat16) if device == "cuda" else (128, torch.float32)
    make = lambda n: (torch.randn(rows, n, device=device, dtype=dtype),)
    own = {
        "softmax+add": softmax_add,
        "rmsnorm": rmsnorm,
        "layernorm+silu": layernorm_silu,
        "logsumexp": logsumexp,
        "max-exp-sum": max_exp_sum,
        "column sum": column_sum,
    }
    return {**{name: (fn, make) for name, fn in own.items()}, **kernels.kernels(device)}


def differentiated(fn: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: torch.Tensor) -> Any:
        leaf = x.detach().requires_grad_()
        made = fn(leaf)
        return torch.autograd.grad(made, leaf, torch.ones_like(made))

    return call


def sizes(count: int, seed: int) -> list[int]:
    """From 96 to 8,000, as many in each power of two, some multiples of 16."""
    draw = random.Random(seed)
    found: list[int] = []
    while len(found) < count:
        n = int(math.exp(draw.uniform(math.log(96), math.log(8000))))
        n -= n % 16 if draw.random() < 0.4 else 0
        if n not in found:
            found.append(n)
    return found


def warm(call: Callable[..., Any], f: Any, make: Callable[[int], tuple[Any, ...]], chosen: list[int]) -> list[float]:
    """Each size until no more code is made or dropped; how long the calls took meanwhile, in milliseconds."""
    took, quiet, known = [], 0, -1
    for _ in range(120):
        for n in chosen:
            args = make(n)
            for _ in range(8):
                began = time.perf_counter()
                call(*args)
                took.append((time.perf_counter() - began) * 1e3)
        f.wait()
        now = len(f.variants) + sum(len(p.dropped) for p in f.programs)
        quiet, known = (quiet + 1 if now == known else 0), now
        if quiet > 30:  # a bucket into which one size falls is hot after 25
            break
    return took


def measure(name: str, kernel: Kernel, options: Any) -> dict[str, Any]:
    fn, make = kernel
    chosen = sizes(options.warm + options.sizes, seed=29)
    seen, unseen = chosen[: options.warm], chosen[options.warm :]
    torch._dynamo.reset()
    around = differentiated if options.backward else lambda f: f
    buckets = anyshape.compile(fn, specialize="buckets")
    general = anyshape.compile(fn, specialize="never")
    began = time.perf_counter()
    around(buckets)(*make(seen[0]))
    first = time.perf_counter() - began
    took = warm(around(buckets), buckets, make, seen)
    # Compiled apart from one another, each for its sizes.
    ways: dict[str, Any] = {"static": torch.compile(fn, dynamic=False), "dynamic": torch.compile(fn, dynamic=True)}
    if options.autotune:
        ways["autotuned"] = torch.compile(fn, dynamic=False, mode="max-autotune-no-cudagraphs")
    ways |= {"buckets": buckets, "general": general}
    around(ways["dynamic"])(*make(seen[0]))
    around(general)(*make(seen[0]))
    rows = []
    for n in unseen:
        args = make(n)
        want = around(fn)(*args)
        for f in (buckets, general):
            torch.testing.assert_close(around(f)(*args), want, rtol=5e-2, atol=2.0)
        row: dict[str, Any] = {"n": n}
        rounds = [
            {w: kernels.milliseconds(around(f), args, options.device) for w, f in ways.items()}
            for _ in range(1 if options.device == "cuda" else 3)  # in turn: the machine has other things to do
        ]
        row |= {w: statistics.median(r[w] for r in rounds) for w in ways}
        rows.append(row)
    made = [v for v in buckets.variants if v.text.count("%") or "<" in v.text]
    served = [v for v in made if v.calls]
    program = buckets.programs[0]
    return {
        "kernel": name,
        "rows": rows,
        "pieces": len(made),
        "serving": len(served),
        "seconds": sum(v.seconds for v in made) / first,
        "p99": sorted(took)[int(len(took) * 0.99)] / statistics.median(took),
        "longest": max(took[1:]),
        "dropped": list(program.dropped),
        "texts": [v.text for v in made],
    }


def in_a_process(name: str) -> dict[str, Any]:
    """The report on one kernel, from a cold start."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        cold = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "TRITON_CACHE_DIR": f"{folder}/triton"}
        own = ["--only", name, "--report", str(report)]
        subprocess.run([sys.executable, *sys.argv, *own], env={**os.environ, **cold}, check=True)
        return dict(json.loads(report.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only")
    parser.add_argument("--warm", type=int, default=60)
    parser.add_argument("--sizes", type=int, default=16)
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--autotune", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--report", help=argparse.SUPPRESS)  # of the process of one kernel
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch._dynamo.config.recompile_limit = 4096
    found = cases(options.device)
    wanted = options.only.split(",") if options.only else list(found)[: 3 if options.backward else None]
    ways = ["buckets", "general", "dynamic", *(["autotuned"] if options.autotune else [])]
    if options.report:
        with torch.enable_grad() if options.backward else torch.no_grad():
            report = measure(wanted[0], found[wanted[0]], options)
        pathlib.Path(options.report).write_text(json.dumps(report))
        return
    head = " ".join(f"{w:>9}" for w in ways)
    print(f"{'kernel':16} {head} {'worst':>6} {'pieces':>6} {'made in':>8} {'p99':>6}   (to static; compiles; median)")
    reports = []
    for name in wanted:
        report = in_a_process(name)
        reports.append(report)
        rows = report["rows"]
        means = " ".join(f"{kernels.mean([r[w] / r['static'] for r in rows]):9.3f}" for w in ways)
        worst = max(r["buckets"] / r["static"] for r in rows)
        made = f"{report['pieces']:6} {report['seconds']:8.2f} {report['p99']:6.2f}"
        print(f"{name:16} {means} {worst:6.2f} {made}", flush=True)
    rows = [r for report in reports for r in report["rows"]]
    summary = {f"{w} / static": kernels.mean([r[w] / r["static"] for r in rows]) for w in ways}
    summary["worst buckets / static"] = max(r["buckets"] / r["static"] for r in rows)
    summary["buckets / dynamic"] = kernels.mean([r["buckets"] / r["dynamic"] for r in rows])
    summary["general / dynamic"] = kernels.mean([r["general"] / r["dynamic"] for r in rows])
    for text, value in summary.items():
        print(f"{text}: {value:.3f}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"torch": torch.__version__, "device": options.device, "kernels": reports}, file, indent=1)


if __name__ == "__main__":
    main()
