"""Images put together from their windows: `F.fold`, and the gradient of `F.unfold`.

Owns one repair: Inductor's CPU code adds whole vectors to rows that are shorter, and writes beyond them (torch 2.13).
Eager's kernel is called on CPUs, whatever the version: nothing in torch tells whether its code is mended.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
import torch._inductor.decomposition as decomposition
import torch._inductor.lowering as inductor_lowering


def _left_whole(stock: Callable[..., Any]) -> Callable[..., Any]:
    def decompose(input: Any, *args: Any, **kwargs: Any) -> Any:
        return NotImplemented if input.device.type == "cpu" else stock(input, *args, **kwargs)

    return decompose


@contextlib.contextmanager
def patches() -> Iterator[None]:
    table, fold = decomposition.decompositions, torch.ops.aten.col2im.default
    if fold not in table:
        yield
        return
    kernel = inductor_lowering.fallback_handler(fold, add_to_fallback_set=False)
    left, lowered = {fold: _left_whole(table[fold])}, {fold: kernel}
    with mock.patch.dict(table, left), mock.patch.dict(inductor_lowering.lowerings, lowered):
        yield
