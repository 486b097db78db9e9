"""A trace of requests with a heavy tail, from a cold start: anyshape beside stock torch's modes, in one run.

A four-block transformer serves requests of changing batch and length, drawn by a seeded generator. *Time lost* is the
total minus the sum of what each call takes on warm static code of its size. Each mode runs in a process of its own with
caches of its own, so that all compilers are cold; the libraries under torch are not, each size has been run eagerly.

*Admission* is the time that anyshape spends on which program serves a call, learning included.

usage: trace.py [--device cuda] [--width 512] [--calls 2000] [--distinct 40] [--rows 8] [--longest 128] [--seed 0]
                [--modes anyshape,auto,...] [--json FILE] [--plot FILE.html]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import plots

MODES = ("static", "auto", "dynamic", "unbacked", "anyshape never", "anyshape", "anyshape background")
LIMITS = {"cuda": (64, 2048), "cpu": (8, 128)}
WIDTH = {"cuda": 512, "cpu": 256}


def requests(options: argparse.Namespace) -> list[tuple[int, int]]:
    """Sizes in the order they come: few are frequent, many are rare (Zipf's law over a pool that is drawn first).

    With two calls a size or fewer, every size comes before one comes again.
    """
    drawn = random.Random(options.seed)
    skewed = lambda most: max(1, min(most, int(most ** drawn.random())))
    sizes = ((skewed(options.rows), skewed(options.longest)) for _ in range(50 * options.distinct))
    pool = list(dict.fromkeys(sizes))[: options.distinct]
    weights = [1 / (rank + 1) for rank in range(len(pool))]
    if options.calls > 2 * len(pool):
        return drawn.choices(pool, weights, k=options.calls)
    rest = drawn.choices(pool, weights, k=max(0, options.calls - len(pool)))
    return drawn.sample(pool, min(len(pool), options.calls)) + rest


def model(device: str, width: int) -> Any:
    import torch

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True, norm_first=True)

    class Blocks(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks.layers:
                x = x + block._sa_block(block.norm1(x), None, None)
                x = x + block._ff_block(block.norm2(x))
            return x

    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    return Blocks().to(device, dtype).eval()


def serve(mode: str, options: Any) -> dict[str, Any]:
    """Seconds of each call, and for static code also those of a warm call of each size."""
    import torch

    import anyshape

    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1 << 20
    net, device = model(options.device, options.width), options.device
    given = {"dynamic": {"dynamic": True}, "static": {"dynamic": False}}.get(mode, {})
    if mode.startswith("anyshape"):
        never = "never" if mode.endswith("never") else None
        f = anyshape.compile(net, specialize=never, background=mode.endswith("background"))
    else:
        f = torch.compile(net, **given)
    dtype = next(net.parameters()).dtype
    sizes = requests(options)
    spent = timed_admissions()
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    inputs = {s: torch.randn(*s, options.width, device=device, dtype=dtype) for s in dict.fromkeys(sizes)}
    if mode == "unbacked":
        for x in inputs.values():
            torch._dynamo.decorators.mark_unbacked(x, 0)
            torch._dynamo.decorators.mark_unbacked(x, 1)
    took = []
    with torch.no_grad():
        for x in inputs.values():
            net(x)  # what torch makes for each size whoever calls, as cuDNN's plans are, is no compiler's time
        wait()
        began = time.perf_counter()
        for size in sizes:
            before = time.perf_counter()
            f(inputs[size])
            wait()
            took.append(time.perf_counter() - before)
        total = time.perf_counter() - began
        warm = {}
        if mode == "static":
            for size, x in inputs.items():
                again = []
                for _ in range(15):
                    before = time.perf_counter()
                    f(x)
                    wait()
                    again.append(time.perf_counter() - before)
                warm[str(size)] = statistics.median(again)
    kept: dict[str, Any] = {}
    if mode.startswith("anyshape"):
        kept = {"programs": len(f.programs), "variants": len(f.variants), "fallbacks": dict(f.fallbacks)}
        kept["admission"] = sum(spent)
    return {"mode": mode, "total": total, "took": took, "warm": warm, **kept}


def timed_admissions() -> list[float]:
    """Seconds of each question whether a program serves a call, from now on."""
    from anyshape.admission.admission import Admission

    spent: list[float] = []
    ask = Admission.__call__

    def timed(self: Any, *values: Any) -> bool:
        began = time.perf_counter()
        try:
            return ask(self, *values)
        finally:
            spent.append(time.perf_counter() - began)

    Admission.__call__ = timed  # type: ignore[method-assign]
    return spent


def in_a_process(mode: str, argv: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        cold = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "TRITON_CACHE_DIR": f"{folder}/triton"}
        command = [sys.executable, __file__, *argv, "--mode", mode, "--json", str(report)]
        done = subprocess.run(command, env={**os.environ, **cold}, capture_output=True, text=True)
        if done.returncode:
            return {"mode": mode, "error": done.stderr.strip().splitlines()[-1][:200]}
        return dict(json.loads(report.read_text()))


def summary(rows: list[dict[str, Any]], sizes: list[tuple[int, int]]) -> None:
    """Adds to each row what it lost, and its slow calls: those of over three times the median of their size."""
    static = next((r for r in rows if r["mode"] == "static" and "warm" in r), None)
    ideal = sum(static["warm"][str(s)] for s in sizes) if static else float("nan")
    for row in rows:
        if "took" not in row:
            continue
        by_size: dict[tuple[int, int], list[float]] = {}
        for size, seconds in zip(sizes, row["took"], strict=True):
            by_size.setdefault(size, []).append(seconds)
        medians = {size: statistics.median(values) for size, values in by_size.items()}
        late = list(zip(sizes, row["took"], strict=True))[10:]
        row["lost"] = row["total"] - ideal
        row["slow calls"] = sum(seconds > 3 * medians[size] for size, seconds in late)
        row["longest after ten"] = max((seconds for _, seconds in late), default=0.0)
        row["p99"] = statistics.quantiles(row["took"][10:], n=100)[98] if len(late) > 1 else 0.0


def plot(rows: list[dict[str, Any]], path: str) -> None:
    series = {}
    for row in rows:
        if "took" in row:
            series[row["mode"]] = range(1, len(row["took"]) + 1), list(itertools.accumulate(row["took"]))
    plots.lines(path, series, "seconds since the start", x="calls", log="y")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=LIMITS)
    parser.add_argument("--width", type=int)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--distinct", type=int, default=40)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--longest", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--mode", help=argparse.SUPPRESS)
    parser.add_argument("--json")
    parser.add_argument("--plot")
    options = parser.parse_args()
    options.width = options.width or WIDTH[options.device]
    options.rows = options.rows or LIMITS[options.device][0]
    options.longest = options.longest or LIMITS[options.device][1]
    if options.mode:
        pathlib.Path(options.json).write_text(json.dumps(serve(options.mode, options)))
        return
    names = ("device", "width", "calls", "distinct", "rows", "longest", "seed")
    passed_on = [f"--{n}={getattr(options, n)}" for n in names]
    sizes = requests(options)
    rows = []
    for mode in options.modes.split(","):
        print(f"{mode} ...", end="\r", flush=True)
        rows.append(in_a_process(mode, passed_on))
    summary(rows, sizes)
    print(f"{'mode':19} {'total s':>8} {'lost s':>8} {'slow calls':>10} {'longest s':>9} {'p99 ms':>8}", end="")
    print(f" {'admission s':>11}")
    for row in rows:
        if "error" in row:
            print(f"{row['mode']:19} {row['error']}")
            continue
        numbers = (row["total"], row["lost"], row["slow calls"], row["longest after ten"], row["p99"] * 1e3)
        print("{:19} {:8.1f} {:8.1f} {:10d} {:9.2f} {:8.2f}".format(row["mode"], *numbers), end="")
        print(f" {row['admission']:11.3f}" if "admission" in row else "")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"sizes": sizes, "rows": rows}))
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
