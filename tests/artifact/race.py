"""Processes that start at once over one shared directory, again and again.

    race.py REPORTS ROUNDS PROCESSES

torch is imported once; each round forks processes that know nothing of one another.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from typing import Any

import served_callables as callables
import torch
import torch._inductor.config as inductor_config
from torch._inductor.graph import GraphLowering

import anyshape

LOWERED = 0
_stock = GraphLowering.__init__


def lowered(self: Any, *args: Any, **kwargs: Any) -> None:
    global LOWERED
    LOWERED += 1
    _stock(self, *args, **kwargs)


GraphLowering.__init__ = lowered


def start(directory: str, report: str, at: float) -> None:
    f = anyshape.compile(callables.picks, distributed="one-rank", artifacts=directory)
    time.sleep(max(0.0, at - time.time()))
    for n in (4, 9, 1):
        x, i = torch.randn(n), torch.tensor([0, n - 1])
        torch.testing.assert_close(f(x, i), callables.picks(x, i))
    with open(report, "w") as file:
        json.dump({"lowered": LOWERED, "programs": len(f.programs)}, file)


def main() -> None:
    reports, rounds, processes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    inductor_config.compile_threads = 1
    for number in range(rounds):
        directory = os.path.join(reports, f"round-{number}")
        children = []
        at = time.time() + 0.3
        for i in range(processes):
            child = os.fork()
            if not child:
                try:
                    start(directory, os.path.join(reports, f"{number}-{i}.json"), at)
                    os._exit(0)
                except BaseException:
                    traceback.print_exc()
                    os._exit(1)
            children.append(child)
        for child in children:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


if __name__ == "__main__":
    main()
