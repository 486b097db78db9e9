"""Steady state of eight kernels over sizes: anyshape's general program and its variants beside stock torch, in one run.

For each kernel and size: milliseconds of stock static code, as ratios to it the variant and the general program of
anyshape, stock `dynamic=True` and stock `mark_unbacked`. Ends with geometric means.

usage: kernels.py [--device cuda] [--only softmax,cumsum] [--sizes 4] [--json FILE] [--plot FILE.html]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import plots
import torch
import torch._dynamo
import torch.nn.functional as F

import anyshape


def softmax(x: torch.Tensor) -> torch.Tensor:
    y = torch.softmax(x, -1)
    z = (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True) + 1e-5)
    return F.gelu(y * z) + x


def layernorm_gelu(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.layer_norm(x, x.shape[-1:]))


def pointwise(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * torch.exp(-x.abs()) + torch.tanh(x) * 0.5 + x.relu()


class NormedMatmul(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width, width) * 0.05)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)) @ self.weight


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(512, 1536) * 0.05)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (x @ self.weight).chunk(3, -1)
        heads = lambda t: t.unflatten(-1, (8, -1)).transpose(1, 2)
        return F.scaled_dot_product_attention(heads(q), heads(k), heads(v)).transpose(1, 2).flatten(2) + x


def cumsum(x: torch.Tensor) -> torch.Tensor:
    return x.cumsum(-1) * 0.5 + x


def topk(x: torch.Tensor) -> torch.Tensor:
    values, _ = torch.topk(x, 4)
    return torch.softmax(values, -1)


def cross_entropy(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x.float(), y)


def kernels(device: str) -> dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]]:
    gpu = device == "cuda"
    rows, dtype = (4096, torch.bfloat16) if gpu else (256, torch.float32)
    new = lambda *shape: torch.randn(*shape, device=device, dtype=dtype)
    width = 1024 if gpu else 128
    place = {"device": device, "dtype": dtype}
    labels = lambda n: torch.randint(0, n, (rows,), device=device)
    return {
        "softmax stack": (softmax, lambda n: (new(rows, n),)),
        "layernorm+gelu": (layernorm_gelu, lambda n: (new(rows, n),)),
        "pointwise chain": (pointwise, lambda n: (new(rows, n),)),
        "rmsnorm+matmul": (NormedMatmul(width).to(**place), lambda n: (new(n, width),)),
        "attention block": (Attention().to(**place), lambda n: (new(4, max(n // 8, 2), 512),)),
        "cumsum": (cumsum, lambda n: (new(rows, n),)),
        "topk": (topk, lambda n: (new(rows // 4, n),)),
        "cross entropy": (cross_entropy, lambda n: (new(rows, n), labels(n))),
    }


SIZES = {"cuda": (1024, 4096, 1000, 777, 8192, 2048, 1536, 3001), "cpu": (1024, 777, 512, 1000)}
REDUCTIONS = ("softmax stack", "layernorm+gelu", "cumsum", "cross entropy")


def milliseconds(f: Callable[..., Any], args: tuple[Any, ...], device: str) -> float:
    for _ in range(5):
        f(*args)
    if device == "cuda":
        # Many calls in a CUDA graph: the kernels' own time, without what a call costs on the CPU (that is call.py's).
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(10):
                f(*args)
        took = []
        for _ in range(11):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            took.append(begin.elapsed_time(end) / 10)
        return statistics.median(took)
    took = []
    for _ in range(31):
        began = time.perf_counter()
        f(*args)
        took.append((time.perf_counter() - began) * 1e3)
    return statistics.median(took)


def measure(name: str, fn: Callable[..., Any], make: Callable[[int], tuple[Any, ...]], options: Any) -> list[Any]:
    torch._dynamo.reset()
    device, sizes = options.device, SIZES[options.device][: options.sizes]
    general = anyshape.compile(fn, specialize="never")
    hot = anyshape.compile(fn, shapes={"x": "... n _"}, specialize=["n > 0"])  # at once, however cold
    stock = {"static": torch.compile(fn, dynamic=False), "dynamic": torch.compile(fn, dynamic=True)}
    unbacked = torch.compile(fn)
    rows = []
    for n in sizes:
        args = make(n)
        want = stock["static"](*args)  # eager's own sums in bf16 are further off than any of these
        for f in (general, hot):
            torch.testing.assert_close(f(*args), want, rtol=5e-2, atol=2.0)
        for _ in range(3):
            hot(*args)
        hot.wait()
        marked = tuple(a.clone() for a in args)
        for tensor in marked:
            for dim in range(tensor.dim()):
                torch._dynamo.decorators.mark_unbacked(tensor, dim)
        ways = {"variant": hot, "general": general, **stock}
        row: dict[str, Any] = {"kernel": name, "n": n}
        row |= {way: milliseconds(f, args, device) for way, f in ways.items()}
        try:
            row["unbacked"] = milliseconds(unbacked, marked, device)
        except Exception as error:
            row["unbacked"] = None
            row["unbacked error"] = type(error).__name__
        rows.append(row)
        ratios = (
            f"{row[w] / row['static']:.2f}" if row[w] else "-" for w in ("variant", "general", "dynamic", "unbacked")
        )
        print(f"{name:16} {n:6} {row['static']:9.4f} " + " ".join(f"{r:>9}" for r in ratios), flush=True)
    assert len(general.programs) == 1, general.programs
    return rows


def mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values))) if values else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only")
    parser.add_argument("--sizes", type=int, default=8)
    parser.add_argument("--json")
    parser.add_argument("--plot")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch._dynamo.config.recompile_limit = 64
    print(f"{'kernel':16} {'n':>6} {'static ms':>9} {'variant':>9} {'general':>9} {'dynamic':>9} {'unbacked':>9}")
    rows = []
    with torch.no_grad():
        for name, (fn, make) in kernels(options.device).items():
            if options.only is None or name in options.only.split(","):
                rows += measure(name, fn, make, options)
    summary = {
        "variant / static": mean([r["variant"] / r["static"] for r in rows]),
        "worst variant / static": max(r["variant"] / r["static"] for r in rows),
        "general / dynamic": mean([r["general"] / r["dynamic"] for r in rows]),
        "unbacked / general, reductions": mean(
            [r["unbacked"] / r["general"] for r in rows if r["unbacked"] and r["kernel"] in REDUCTIONS]
        ),
    }
    print(f"{'geometric means':16} {'variant':>9} {'general':>9} {'dynamic':>9} {'unbacked':>9} {'worst variant':>13}")
    for kernel in dict.fromkeys(r["kernel"] for r in rows):
        own = [r for r in rows if r["kernel"] == kernel]
        of = lambda way, own=own: [r[way] / r["static"] for r in own if r[way]]
        means = " ".join(f"{mean(of(way)):9.2f}" for way in ("variant", "general", "dynamic", "unbacked"))
        print(f"{kernel:16} {means} {max(of('variant')):13.2f}")
    for name, value in summary.items():
        print(f"{name}: {value:.3f}")
    if options.json:
        report = {"torch": torch.__version__, "device": options.device, "rows": rows, "summary": summary}
        with open(options.json, "w") as file:
            json.dump(report, file, indent=1)
    if options.plot:
        names = dict.fromkeys(r["kernel"] for r in rows)
        of = lambda way, kernel: [r[way] / r["static"] for r in rows if r["kernel"] == kernel and r[way]]
        ways = ("variant", "general", "dynamic", "unbacked")
        plots.bars(options.plot, {w: {k: mean(of(w, k)) for k in names} for w in ways}, "time, of stock static's")


if __name__ == "__main__":
    main()
