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

ROUNDS = 40


def microseconds(calls: dict[int, Callable[[], Any]]) -> dict[int, float]:
    """The best of many rounds, all in turn, by the clock of the thread: what else the machine does is left out."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for count, call in calls.items():
            call()
            began = time.thread_time()
            for _ in range(50):
                call()
            best[count] = min(best[count], (time.thread_time() - began) / 50)
    return {count: seconds * 1e6 for count, seconds in best.items()}


def by_keys(counts: list[int]) -> list[dict[str, float]]:
    torch._dynamo.reset()
    room, calls, used = torch.zeros(1), {}, {}
    asked = room.expand(2, 3)
    for count in counts:
        f = anyshape.compile(lambda x: x.sum(), backend="aot_eager")
        f(asked)
        tracemalloc.start()
        for seen in range(count):
            f(room.expand(2 + seen % 1000, 3 + seen // 1000))
        used[count] = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(f.programs) == 1, f.programs
        calls[count] = lambda f=f: f(asked)
    times = microseconds(calls)
    return [{"keys": n, "microseconds": times[n], "bytes a key": used[n] / n} for n in counts]


def by_programs(counts: list[int]) -> list[dict[str, float]]:
    """One call again and again, as for keys; then all programs in turn, beside as many functions with a program each.

    Code that was not run a moment ago is not in the processor's caches, whoever it belongs to.
    """
    torch._dynamo.reset()

    def behaviours() -> Callable[[torch.Tensor], torch.Tensor]:
        def fn(x: torch.Tensor) -> torch.Tensor:
            for size in range(2, 200):
                if x.shape[0] == size:  # a behavior for each
                    return x + size
            return x

        return anyshape.compile(fn, backend="aot_eager")

    same, turns, functions = {}, {}, {}
    for count in counts:
        f, inputs = behaviours(), [torch.zeros(2 + i) for i in range(count)]
        pairs = [(behaviours(), x) for x in inputs]
        same[count] = lambda f=f, x=inputs[0]: f(x)
        turns[count] = lambda f=f, inputs=inputs: [f(x) for x in inputs]
        functions[count] = lambda pairs=pairs: [f(x) for f, x in pairs]
        for _ in range(2):
            turns[count](), functions[count]()
        assert len(f.programs) == count and all(len(f.programs) == 1 for f, _ in pairs)
    took = microseconds(same)
    each = microseconds({**turns, **{-count: call for count, call in functions.items()}})
    return [
        {"programs": n, "microseconds": took[n], "in turn": each[n] / n, "as functions": each[-n] / n} for n in counts
    ]


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
