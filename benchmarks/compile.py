"""What a first call costs: anyshape beside stock `dynamic=True`, cold, and in a second process whose caches are warm.

Six models of the zoo with Inductor, each way in a process of its own with a cache directory of its own. `seconds` is
the first call's wall time, `cpu` the CPU time of it with the compilers that were started for it, for machines that
others use too. The share of verification is what admitting new sizes took, of the first call, over four more sizes.

usage: compile.py [--models NAME,...] [--rounds 2] [--json FILE] [--plot FILE.html]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from benchmarks import plots

MODELS = ("llama", "gpt2", "bert", "t5", "vit", "resnet")
STATES = ("cold", "warm")
WARM_STARTS = 3  # of each round
FIRST, MORE = (2, 16), ((3, 24), (5, 7), (4, 32), (7, 19))


def first_call(name: str, way: str) -> None:
    """In the process of its own."""
    import torch

    import anyshape
    from benchmarks.zoo.measure import ROWS

    row = ROWS[name]
    model = row.build().eval()
    with torch.no_grad():
        _warm_up(torch, anyshape, way)
        mine = way == "anyshape"
        f: Any = anyshape.compile(model, specialize="never") if mine else torch.compile(model, dynamic=True)
        inputs = row.inputs(*FIRST)
        began, cpu = time.perf_counter(), _cpu()
        f(**inputs)
        result = {"seconds": time.perf_counter() - began, "cpu": _cpu() - cpu}
        if mine:
            before = sum(p.verify_seconds for p in f.programs)
            for size in MORE:
                f(**row.inputs(*size))
            result["verify"] = (sum(p.verify_seconds for p in f.programs) - before) / len(MORE)
            result["programs"] = len(f.programs)
    print(json.dumps(result))


def _warm_up(torch: Any, anyshape: Any, way: str) -> None:
    """Imports and the compiler's own first use are nobody's price."""
    fn = lambda x: torch.nn.functional.gelu(x) + 1
    (anyshape.compile(fn) if way == "anyshape" else torch.compile(fn, dynamic=True))(torch.ones(3, 5))


def _cpu() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in used)


def child(name: str, way: str, cache: str) -> dict[str, float]:
    # Compilers in this process: what they cost is seen.
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.compile", "--child", name, way]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    if ran.returncode:
        sys.exit(ran.stderr[-3000:])
    return json.loads(ran.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def measure(name: str, rounds: int) -> dict[str, Any]:
    """In turn, and warm starts more than once, for they are short: what else the machine does hits both alike."""
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as caches:
            for state in ("cold", *["warm"] * WARM_STARTS):
                for way in ("anyshape", "stock"):
                    found.setdefault(f"{way}, {state}", []).append(child(name, way, f"{caches}/{way}"))
    of = lambda key, what: statistics.median(r[what] for r in found[key])
    result: dict[str, Any] = {"model": name}
    for state in STATES:
        for what in ("seconds", "cpu"):
            mine, stock = of(f"anyshape, {state}", what), of(f"stock, {state}", what)
            result |= {
                f"anyshape {state} {what}": mine,
                f"stock {state} {what}": stock,
                f"{state} {what}": mine / stock,
            }
    result["verify share"] = of("anyshape, cold", "verify") / of("anyshape, cold", "seconds")
    result["programs"] = int(of("anyshape, cold", "programs"))
    return result


def report(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        f"{'':10}" + "".join(f"{s + ': anyshape':>16}{'stock':>8}{'ratio':>7}{'cpu':>6}" for s in STATES) + "  verify"
    ]
    for r in rows:
        cells = ""
        for s in STATES:
            cells += f"{r[f'anyshape {s} seconds']:>14.2f} s{r[f'stock {s} seconds']:>6.2f} s"
            cells += f"{r[f'{s} seconds']:>7.2f}{r[f'{s} cpu']:>6.2f}"
        lines.append(f"{r['model']:10}{cells}{r['verify share']:>8.1%}")
    for key in (f"{s} {what}" for s in STATES for what in ("seconds", "cpu")):
        mean = math.exp(statistics.fmean(math.log(r[key]) for r in rows))
        lines.append(f"{key}: geometric mean {mean:.2f} of stock's")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--plot")
    parser.add_argument("--child", nargs=2, metavar=("NAME", "WAY"))
    given = parser.parse_args()
    if given.child:
        return first_call(*given.child)
    rows = [measure(name, given.rounds) for name in given.models.split(",")]
    print(report(rows))
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")
    if given.plot:
        series = {s: {r["model"]: r[f"{s} seconds"] for r in rows} for s in STATES}
        plots.bars(given.plot, series, "seconds of the first call, of stock dynamic=True")


if __name__ == "__main__":
    main()
