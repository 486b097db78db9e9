"""Lazy modules.

Owns one repair (torch 2.11 to 2.15): Dynamo initializes a lazy module with the fake arguments of its first call
(variables/nn_module.py, `initialize_lazy_module`), and real parameters are made from sizes that are free. Here it sees
the sizes of the call, as in eager.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import torch._dynamo.variables.nn_module as nn_module

from anyshape._torch import concrete
from anyshape._torch.shape_env import FreeShapeEnv


@contextlib.contextmanager
def patches() -> Iterator[None]:
    stock = nn_module.initialize_lazy_module

    def initialize(tx: Any, mod: Any, args: Any, kwargs: Any) -> None:
        env = tx.output.shape_env
        if not isinstance(env, FreeShapeEnv) or not hasattr(mod, "_initialize_hook"):
            stock(tx, mod, args, kwargs)
            return
        fake_value = nn_module.get_fake_value

        def as_called(*given: Any, **more: Any) -> Any:
            return concrete.map_leaves(lambda leaf: _as_called(env, leaf), fake_value(*given, **more))

        with mock.patch.object(nn_module, "get_fake_value", as_called):
            stock(tx, mod, args, kwargs)

    with mock.patch.object(nn_module, "initialize_lazy_module", initialize):
        yield


def _as_called(env: FreeShapeEnv, value: Any) -> Any:
    """A tensor with the sizes of the call, and nothing in it."""
    if not isinstance(value, torch.Tensor):
        return value
    sizes = [int(concrete.number_expr(n).xreplace(env.recording.actuals)) for n in value.shape]
    return torch.empty(sizes, dtype=value.dtype, device="meta")
