"""One rank of a job in which one rank compiles. Run by torchrun, or by hand with the same variables set.

    rank.py REPORTS MODE STEPS [DIRECTORY]

MODE is `function`, `training`, `ddp`, `fsdp`, or `victim`: then rank 1 is the first to compile, and dies doing it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import warnings
from typing import Any

import served_callables as callables
import torch
import torch.distributed as dist
from torch._inductor.graph import GraphLowering

import anyshape

LOWERED = 0
_stock = GraphLowering.__init__


def lowered(self: Any, *args: Any, **kwargs: Any) -> None:
    global LOWERED
    LOWERED += 1
    if os.environ.get("VICTIM") == os.environ["RANK"]:
        os.kill(os.getpid(), signal.SIGKILL)
    _stock(self, *args, **kwargs)


GraphLowering.__init__ = lowered


def function_steps(steps: int, rank: int, **options: Any) -> tuple[int, list[str]]:
    f = anyshape.compile(callables.branching, distributed="one-rank", **options)
    rng = random.Random(100 + rank)
    for _ in range(steps):
        n, m = rng.choice([0, 1, 2, 5, 8, 9, 12, 33]), rng.choice([1, 2, 6])
        x, y = torch.randn(n, m), torch.randn(m, 7)
        torch.testing.assert_close(f(x, y), callables.branching(x, y))
    return len(f.programs), sorted(p.behavior for p in f.programs)


def training_steps(steps: int, rank: int) -> tuple[int, list[str]]:
    net, twin = callables.net(), callables.net()
    f = anyshape.compile(net, distributed="one-rank")
    rng = random.Random(100 + rank)
    for _ in range(steps):
        x = torch.randn(rng.choice([1, 2, 5]), rng.choice([4, 16, 17, 30]), 8)
        for model, call in ((net, f), (twin, twin)):
            model.zero_grad()
            call(x).square().mean().backward()
        for a, b in zip(net.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad)
    return len(f.programs), sorted(p.behavior for p in f.programs)


def wrapped_steps(steps: int, rank: int, mode: str) -> tuple[int, list[str]]:
    """A module that DDP or FSDP2 looks after, beside one that nobody compiled."""

    def wrap(module: torch.nn.Module) -> torch.nn.Module:
        if mode == "ddp":
            return torch.nn.parallel.DistributedDataParallel(module)
        from torch.distributed.fsdp import fully_shard

        fully_shard(module)
        return module

    net, twin = wrap(callables.net()), wrap(callables.net())
    f = anyshape.compile(net, distributed="one-rank")
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (f, twin)]
    rng = random.Random(100 + rank)
    for _ in range(steps):
        x = torch.randn(rng.choice([1, 2, 5]), rng.choice([4, 16, 17, 30]), 8)
        for model, optimizer in zip((f, twin), optimizers, strict=True):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    local = lambda t: t.to_local() if hasattr(t, "to_local") else t
    for a, b in zip(f.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(local(a), local(b))
    inner = f.module if mode == "ddp" else f
    return len(inner.forward.programs), sorted(p.behavior for p in inner.forward.programs)


def main() -> None:
    reports, mode, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
    rank = int(os.environ["RANK"])
    torch.manual_seed(rank)
    warnings.simplefilter("error", anyshape.FallbackWarning)
    directory = sys.argv[4] if len(sys.argv) > 4 else None
    if directory is None:
        if "STORE_PORT" in os.environ:  # the store outlives every rank
            store = dist.TCPStore("localhost", int(os.environ["STORE_PORT"]), is_master=False)
            dist.init_process_group("gloo", store=store, rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
        else:
            dist.init_process_group("gloo")
    if "VICTIM" in os.environ and os.environ["VICTIM"] != os.environ["RANK"]:
        while not os.path.exists(os.path.join(reports, "victim")):
            time.sleep(0.02)
        time.sleep(0.5)
    elif "VICTIM" in os.environ:
        open(os.path.join(reports, "victim"), "w").close()
    began = time.monotonic()
    if mode == "training":
        programs, behaviours = training_steps(steps, rank)
    elif mode in ("ddp", "fsdp"):
        programs, behaviours = wrapped_steps(steps, rank, mode)
    else:
        programs, behaviours = function_steps(steps, rank, artifacts=directory)
    report = {"rank": rank, "lowered": LOWERED, "programs": programs, "behaviours": behaviours}
    report["seconds"] = time.monotonic() - began
    with open(os.path.join(reports, f"{rank}.json"), "w") as file:
        json.dump(report, file)
    if dist.is_initialized() and "VICTIM" not in os.environ:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
