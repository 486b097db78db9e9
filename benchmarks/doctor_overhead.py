"""What observing costs: a program compiled and called, with and without the doctor, in turns in one process.

    python benchmarks/doctor_overhead.py [--backend aot_eager] [--rounds 7]

Prints the ratio of the fastest rounds, for the compilations and for the calls.
"""

from __future__ import annotations

import argparse
import contextlib
import time

import torch

import anyshape


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0).eval()


def one_round(backend: str, observed: bool) -> tuple[float, float]:
    """Processor seconds to compile for three sizes, and for calls after that: the clock on the wall hears others."""
    torch._dynamo.reset()
    f = torch.compile(model(), backend=backend)
    inputs = [torch.ones(n, 16, 64) for n in (4, 8, 1)]
    with torch.no_grad(), anyshape.observe() if observed else contextlib.nullcontext():
        began = time.process_time()
        for x in inputs:
            f(x)
        compiled = time.process_time()
        for _ in range(200):
            for x in inputs:
                f(x)
        return compiled - began, time.process_time() - compiled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    one_round(options.backend, False)
    plain, watched = [], []
    for _ in range(options.rounds):
        plain.append(one_round(options.backend, False))
        watched.append(one_round(options.backend, True))
    print(f"torch {torch.__version__}, {options.backend}, fastest of {options.rounds} rounds")
    for index, what in enumerate(("compiling", "600 calls")):
        a, b = (min(r[index] for r in rounds) for rounds in (plain, watched))
        print(f"{what:>10}: {a:.4f} s plain, {b:.4f} s observed, ratio {b / a:.3f}")


if __name__ == "__main__":
    main()
