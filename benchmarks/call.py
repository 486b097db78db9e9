"""Time of a call on a seen key, with next to nothing to compute: anyshape beside stock static code, in one run.

usage: call.py [--json FILE] [--plot FILE.html]
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import plots
import torch
from torch import nn

import anyshape


class Deep(nn.Module):
    """A hundred layers, so that there is much to guard and little to do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.LayerNorm(4) for _ in range(100))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer.bias
        return x


def cases() -> dict[str, tuple[Callable[[], Any], tuple[Any, ...]]]:
    found: dict[str, tuple[Callable[[], Any], tuple[Any, ...]]] = {}
    for count in (1, 3, 30):
        names = ", ".join(f"x{i}" for i in range(count))
        scope: dict[str, Any] = {}
        exec(f"def fn({names}):\n    return x0 + 1", scope)
        found[f"{count} inputs"] = (lambda fn=scope["fn"]: fn, tuple(torch.randn(4, 3) for _ in range(count)))
    found["100 layers"] = (Deep, (torch.randn(2, 4),))
    return found


def microseconds(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """In turn, many times: what else the machine does hits all alike."""
    took: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(60):
        for name, call in calls.items():
            began = time.perf_counter()
            for _ in range(100):
                call()
            took[name].append((time.perf_counter() - began) * 1e4)
    return {name: statistics.median(values) for name, values in took.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json")
    parser.add_argument("--plot")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    print(f"{'':12} {'static us':>10} {'dynamic':>8} {'anyshape':>8} {'frozen':>8}   (ratios to static)")
    with torch.no_grad():
        for name, (make, args) in cases().items():
            torch._dynamo.reset()
            made = make()
            ways = {
                "static": torch.compile(made, dynamic=False),
                "dynamic": torch.compile(made, dynamic=True),
                "anyshape": anyshape.compile(made, specialize="never"),
                "frozen": anyshape.compile(made, specialize="never", frozen=True),
            }
            for f in ways.values():
                for _ in range(3):
                    torch.testing.assert_close(f(*args), made(*args))
            took = microseconds({way: functools.partial(f, *args) for way, f in ways.items()})
            rows.append({"case": name, **took})
            ratios = " ".join(f"{took[w] / took['static']:8.2f}" for w in ("dynamic", "anyshape", "frozen"))
            print(f"{name:12} {took['static']:10.1f} {ratios}", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"torch": torch.__version__, "rows": rows}, file, indent=1)
    if options.plot:
        ratios = {w: {r["case"]: r[w] / r["static"] for r in rows} for w in ("dynamic", "anyshape", "frozen")}
        plots.bars(options.plot, ratios, "time of a call, of stock static's")


if __name__ == "__main__":
    main()
