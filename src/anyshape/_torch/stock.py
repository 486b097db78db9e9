"""Stock `torch.compile`, to stand beside anyshape.

Owns the ways people use it today, with its programs counted and its limits raised so that nothing hides behind an eager
fallback. Used by the demo and the benchmarks; `anyshape.compile` itself does not know this module.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._dynamo.config as dynamo_config
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch._dynamo import lookup_backend
from torch._dynamo.decorators import mark_unbacked as _mark_unbacked
from torch._dynamo.utils import counters

from anyshape._torch import trees

MODES = ("auto", "dynamic=True", "mark_unbacked")
_NO_LIMIT = 1 << 20
_MEASURING: tuple[tuple[Any, dict[str, Any]], ...] = (
    (dynamo_config, {"recompile_limit": _NO_LIMIT, "accumulated_recompile_limit": _NO_LIMIT}),
    (functorch_config, {"enable_autograd_cache": False}),
    (inductor_config, {"fx_graph_cache": False}),
)


@dataclasses.dataclass
class Counted:
    """A function compiled by stock torch, and how many graphs its backend has been given."""

    call: Callable[..., Any]
    programs: int = 0

    def __call__(self, *args: Any) -> Any:
        return self.call(*args)


def compile(fn: Callable[..., Any], *, mode: str, backend: str = "inductor") -> Counted:
    """`torch.compile` as `mode` says; `mark_unbacked` marks every dim of every tensor of a call's arguments."""
    if mode not in MODES:
        raise ValueError(f"mode {mode!r} is not one of {', '.join(MODES)}")
    inner = lookup_backend(backend)

    def counting(graph: Any, inputs: Any) -> Any:
        counted.programs += 1
        return inner(graph, inputs)

    compiled = torch.compile(fn, backend=counting, dynamic=True if mode == "dynamic=True" else None)

    def marked(*args: Any) -> Any:
        for value in trees.leaves(args):
            if isinstance(value, torch.Tensor):
                for dim in range(value.dim()):
                    _mark_unbacked(value, dim)
        return compiled(*args)

    counted = Counted(marked if mode == "mark_unbacked" else compiled)
    return counted


@contextlib.contextmanager
def measuring() -> Iterator[None]:
    """Counts and seconds are true in here: no recompile limit, no cache that an earlier run filled."""
    with contextlib.ExitStack() as stack:
        for config, settings in _MEASURING:
            stack.enter_context(config.patch(**{k: v for k, v in settings.items() if hasattr(config, k)}))
        yield


def graph_breaks() -> int:
    """Graph breaks since `forget`, of whoever compiled: code between two graphs runs eagerly."""
    return sum(counters["graph_break"].values())


def forget() -> None:
    """Drop what stock torch has compiled and learnt about sizes, so that the next run starts afresh."""
    torch._dynamo.reset()
    counters.clear()
