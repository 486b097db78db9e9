"""The CPU generator in a graph: operators for `get_rng_state`, `set_rng_state` and `manual_seed`.

Owns three operators that read and set the CPU generator in a graph, in the place of `torch.get_rng_state`,
`torch.set_rng_state` and `torch.manual_seed`, which Dynamo refuses to trace (torch 2.11 to 2.15), and the guards
against dispatch that surround them in torch's own helpers. A graph keeps them in their order.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.node import has_side_effect


@functools.cache
def _operators() -> Any:
    @torch.library.custom_op("anyshape::get_rng_state", mutates_args=())  # type: ignore[untyped-decorator]
    def get_state() -> torch.Tensor:
        return torch.get_rng_state()

    @get_state.register_fake  # type: ignore[untyped-decorator]
    def _() -> torch.Tensor:
        return torch.empty(_STATE_BYTES, dtype=torch.uint8, device="cpu")

    @torch.library.custom_op("anyshape::set_rng_state", mutates_args=())  # type: ignore[untyped-decorator]
    def set_state(state: torch.Tensor) -> None:
        torch.set_rng_state(state)

    @set_state.register_fake  # type: ignore[untyped-decorator]
    def _(state: torch.Tensor) -> None:
        return None

    @torch.library.custom_op("anyshape::manual_seed", mutates_args=())  # type: ignore[untyped-decorator]
    def seed(value: int) -> None:
        torch.manual_seed(value)

    @seed.register_fake  # type: ignore[untyped-decorator]
    def _(value: int) -> None:
        return None

    for name in ("get_rng_state", "set_rng_state", "manual_seed"):
        has_side_effect(getattr(torch.ops.anyshape, name).default)
    return torch.ops.anyshape


_STATE_BYTES = torch.get_rng_state().numel()


def get_rng_state() -> Any:
    return torch.ops.anyshape.get_rng_state()


def set_rng_state(new_state: Any) -> Any:
    torch.ops.anyshape.set_rng_state(new_state)


def manual_seed(seed: Any) -> Any:
    torch.ops.anyshape.manual_seed(seed)


def nothing(*args: Any) -> Any:
    return contextlib.nullcontext()


def rules() -> dict[Any, Callable[..., Any]]:
    """What stands in the place of each call."""
    _operators()
    table: dict[Any, Callable[..., Any]] = {torch.manual_seed: manual_seed, torch.random.manual_seed: manual_seed}
    if not torch.accelerator.is_available():
        # With an accelerator there is more state than the CPU's.
        table |= {torch.get_rng_state: get_rng_state, torch.set_rng_state: set_rng_state}
    for name in ("_DisableFuncTorch", "_DisableTorchDispatch"):
        if hasattr(torch._C, name):
            table[getattr(torch._C, name)] = nothing
    return table
