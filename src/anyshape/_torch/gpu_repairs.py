"""Inductor on GPUs, as torch 2.11 has it.

Owns three repairs that newer torch does not need. The launcher of a kernel over a grid of two dims divides by the
number of its blocks, which is 0 where there is nothing to compute (runtime/triton_heuristics.py; mended in 2.13).
Whether a product is worth padding is asked about its sizes rather than their hints, so that programs split by what is
only a matter of speed (fx_passes/pad_mm.py; mended in 2.13). And what is added to one place by all threads of a block
is added by those beyond the last element too (codegen/triton.py; mended in 2.13).
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
import torch._inductor.fx_passes.pad_mm as pad_mm
from torch._inductor.codegen.triton import TritonKernel
from torch._inductor.runtime import triton_heuristics

_Grid = getattr(triton_heuristics, "Grid2DWithYZOverflow", None)


@contextlib.contextmanager
def patches() -> Iterator[None]:
    """While Inductor compiles."""
    with contextlib.ExitStack() as stack:
        if _Grid is not None:
            stack.enter_context(mock.patch.object(_Grid, "generate", _without_division_by_zero(_Grid.generate)))
        for name in ("is_mm_compute_bound", "should_pad_mm_bf16"):
            if hasattr(pad_mm, name):
                stack.enter_context(mock.patch.object(pad_mm, name, _about_hints(getattr(pad_mm, name))))
        if "mask_constant_index" not in inspect.signature(TritonKernel.indexing).parameters:
            stack.enter_context(mock.patch.object(TritonKernel, "store", _masked(TritonKernel.store)))
        yield


def _masked(store: Callable[..., None]) -> Callable[..., None]:
    """Additions to an index that is a number are made where there are elements."""

    def stored(self: Any, name: str, index: Any, value: Any, mode: Any = None) -> None:
        def indexing(*args: Any, **kwargs: Any) -> Any:
            options = type(self).indexing(self, *args, **kwargs)
            if not options.mask_vars:
                ranges = (t for t in self.range_trees if not t.is_reduction and not self._has_constant_mask(t))
                options.mask_vars.update(f"{t.prefix}mask" for t in ranges)
            return options

        with mock.patch.object(self, "indexing", indexing) if mode == "atomic_add" else contextlib.nullcontext():
            store(self, name, index, value, mode)

    return stored


def _without_division_by_zero(generate: Callable[..., None]) -> Callable[..., None]:
    def generated(self: Any, *args: Any, **kwargs: Any) -> None:
        generate(self, *args, **kwargs)
        if self.mode == "python" and "y_grid_div_ == 0" not in self.y_grid:
            self.y_grid = f"(0 if y_grid_div_ == 0 else {self.y_grid})"

    return generated


def _about_hints(asks: Callable[..., bool]) -> Callable[..., bool]:
    def asked(*args: Any) -> bool:
        return asks(*(a.node.hint if isinstance(a, torch.SymInt) and a.node.has_hint() else a for a in args))

    return asked
