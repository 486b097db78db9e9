"""Cost of a call and memory against what is known already: sizes seen, and programs.

usage: growth.py [--keys 10,1000,100000] [--programs 1,8,64] [--json FILE] [--plot FILE.html]
"""

from __future__ import annotations

import argparse
import json
import time
import tracemalloc
import warnings
from collections.abc import Callable
from typing import Any

import plots
import torch

import anyshape


def microseconds(call: Callable[[], Any]) -> float:
    """The best of many rounds, by the clock of the thread: what else the machine does is left out."""
    best = float("inf")
    for _ in range(40):
        began = time.thread_time()
        for _ in range(50):
            call()
        best = min(best, (time.thread_time() - began) / 50)
    return best * 1e6


def by_keys(counts: list[int]) -> list[dict[str, float]]:
    torch._dynamo.reset()
    f = anyshape.compile(lambda x: x.sum(), backend="aot_eager")
    room = torch.zeros(1)
    rows, seen = [], 0
    f(room.expand(2, 3))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for count in counts:
        while seen < count:
            f(room.expand(2 + seen % 1000, 3 + seen // 1000))
            seen += 1
        x = room.expand(2, 3)
        used = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        rows.append({"keys": count, "microseconds": microseconds(lambda x=x: f(x)), "bytes a key": used / count})
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0] - used
    tracemalloc.stop()
    assert len(f.programs) == 1, f.programs
    return rows


def by_programs(counts: list[int]) -> list[dict[str, float]]:
    torch._dynamo.reset()

    def fn(x: torch.Tensor) -> torch.Tensor:
        for size in range(2, 200):
            if x.shape[0] == size:  # a behaviour for each
                return x + size
        return x

    f = anyshape.compile(fn, backend="aot_eager")
    rows, made = [], 0
    for count in counts:
        while made < count:
            f(torch.zeros(2 + made))
            made += 1
        inputs = [torch.zeros(2 + i) for i in range(count)]
        for x in inputs:
            f(x)
        assert len(f.programs) == count
        in_turn = lambda inputs=inputs: [f(x) for x in inputs]
        rows.append({"programs": count, "microseconds": microseconds(in_turn) / count})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", default="10,100,1000,10000,100000")
    parser.add_argument("--programs", default="1,2,8,32,64")
    parser.add_argument("--json")
    parser.add_argument("--plot")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    numbers = lambda text: [int(n) for n in text.split(",")]
    with torch.no_grad():
        report = {"keys": by_keys(numbers(options.keys)), "programs": by_programs(numbers(options.programs))}
    for rows in report.values():
        for row in rows:
            print("  ".join(f"{name} {value:10.1f}" for name, value in row.items()))
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"torch": torch.__version__, **report}, file, indent=1)
    if options.plot:
        series = {name: ([r[name] for r in rows], [r["microseconds"] for r in rows]) for name, rows in report.items()}
        plots.lines(options.plot, series, "microseconds a call", x="how many are known", log="x")


if __name__ == "__main__":
    main()
