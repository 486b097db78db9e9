"""Lazy modules, initialized with concrete sizes instead of free ones.

Owns one repair (torch 2.11 to 2.15): Dynamo initializes a lazy module with the fake arguments of its first call
(variables/nn_module.py, `initialize_lazy_module`), and real parameters are made from sizes that are free. Here it sees
the sizes of the call, as in eager.
"""

from __future__ import annotations

from typing import Any

import torch

from anyshape._torch.fake_runs import concrete
from anyshape._torch.repairs import registry
from anyshape._torch.repairs.registry import repair
from anyshape._torch.symbolic.shape_env import FreeShapeEnv

_ABOUT: Any = {
    "phase": "capture",
    "broken": "2.11-2.15",
    "symptom": "A lazy module is initialized with free sizes, and its real parameters are made from them.",
    "cause": "variables/nn_module.py:initialize_lazy_module calls it with the fake arguments of its first call.",
    "goes": "when Dynamo initializes lazy modules with hints",
}


@repair(
    "torch._dynamo.variables.nn_module:initialize_lazy_module",
    scope="capture",
    cure="It sees the sizes of the call, as in eager.",
    **_ABOUT,
)
def initialize_lazy_module(stock: Any) -> Any:
    def initialize(tx: Any, mod: Any, args: Any, kwargs: Any) -> None:
        env = tx.output.shape_env
        if not isinstance(env, FreeShapeEnv) or not hasattr(mod, "_initialize_hook"):
            stock(tx, mod, args, kwargs)
            return
        with registry.entered("lazy module", env=env):
            stock(tx, mod, args, kwargs)

    return initialize


@repair(
    "torch._dynamo.variables.nn_module:get_fake_value",
    scope="lazy module",
    cure="Fake values have the sizes of the call while a lazy module is initialized.",
    **_ABOUT,
)
def get_fake_value(stock: Any, *, env: FreeShapeEnv) -> Any:
    def as_called(*given: Any, **more: Any) -> Any:
        return concrete.map_leaves(lambda leaf: _as_called(env, leaf), stock(*given, **more))

    return as_called


def _as_called(env: FreeShapeEnv, value: Any) -> Any:
    """A tensor with the sizes of the call, and nothing in it."""
    if not isinstance(value, torch.Tensor):
        return value
    sizes = [int(concrete.number_expr(n).xreplace(env.recording.actuals)) for n in value.shape]
    return torch.empty(sizes, dtype=value.dtype, device="meta")
