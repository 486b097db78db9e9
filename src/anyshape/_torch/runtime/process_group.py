"""The store of the default process group, and modules of DDP and FSDP.

Owns the store of the default process group, and which modules belong to torch's distributed wrappers.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from anyshape._torch.repairs import registry
from anyshape._torch.repairs.registry import repair


def has_store() -> bool:
    return dist.is_available() and dist.is_initialized()


def store(prefix: str, *, seconds: float) -> Any:
    """The default process group's store under a prefix; what it does not answer within some seconds is an error."""
    found = dist.distributed_c10d._get_default_store()
    if hasattr(found, "clone"):  # a connection of its own, so that a heartbeat never waits behind another request
        found = found.clone()
        found.set_timeout(datetime.timedelta(seconds=seconds))  # for this connection alone
    return dist.PrefixStore(prefix, found)


def rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


@contextlib.contextmanager
def for_a_file() -> Iterator[None]:
    """How a call is captured that is to be saved."""
    with registry.entered("file"):
        yield


@repair(
    "torch._dynamo.config:optimize_ddp",
    "torch._dynamo.config:record_runtime_overhead",
    scope="file",
    phase="capture",
    kind="meaning",
    symptom="Graphs of DDP modules are split at its buckets; saved code imports torch's timers, which takes a second.",
    cause="convert_frame.py has a way of its own for DDP, and writes calls of timers into frames.",
    cure="Both are off for what is to be saved.",
    goes="never: it is about code for another process",
    over=("capture_scope.settings",),
)
def settings() -> dict[str, Any]:
    return {"optimize_ddp": False, "record_runtime_overhead": False}


def inner_of(module: Any) -> Any:
    """The module whose forward is compiled for one that DDP or FSDP2 looks after; None for any other."""
    if not isinstance(module, torch.nn.Module):
        return None
    if isinstance(module, torch.nn.parallel.DistributedDataParallel):
        return module.module
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError:
        return None
    return module if isinstance(module, FSDPModule) else None
