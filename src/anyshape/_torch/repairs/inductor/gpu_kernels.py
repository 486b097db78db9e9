"""Triton launchers of empty grids, padding of products and block sums in torch 2.11.

Owns three repairs that newer torch does not need. The launcher of a kernel over a grid of two dims divides by the
number of its blocks, which is 0 where there is nothing to compute (runtime/triton_heuristics.py; mended in 2.13).
Whether a product is worth padding is asked about its sizes rather than their hints, so that programs split by what is
only a matter of speed (fx_passes/pad_mm.py; mended in 2.13). And what is added to one place by all threads of a block
is added by those beyond the last element too (codegen/triton.py; mended in 2.13).
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch._inductor.codegen.triton import TritonKernel

from anyshape._torch.repairs.registry import repair


@repair(
    "torch._inductor.codegen.triton:TritonKernel.store",
    scope="compile",
    phase="codegen",
    broken="2.11",
    symptom="On a GPU, what all threads of a block add to one place is too much.",
    cause="codegen/triton.py:TritonKernel.store adds for threads beyond the last element too.",
    cure="Additions to an index that is a number are made where there are elements.",
    goes="with torch 2.11",
    needed=lambda: "mask_constant_index" not in inspect.signature(TritonKernel.indexing).parameters,
)
def _masked(stock: Callable[..., None]) -> Callable[..., None]:
    def stored(self: Any, name: str, index: Any, value: Any, mode: Any = None) -> None:
        def indexing(*args: Any, **kwargs: Any) -> Any:
            options = type(self).indexing(self, *args, **kwargs)
            if not options.mask_vars:
                ranges = (t for t in self.range_trees if not t.is_reduction and not self._has_constant_mask(t))
                options.mask_vars.update(f"{t.prefix}mask" for t in ranges)
            return options

        with mock.patch.object(self, "indexing", indexing) if mode == "atomic_add" else contextlib.nullcontext():
            stock(self, name, index, value, mode)

    return stored


@repair(
    "torch._inductor.runtime.triton_heuristics:Grid2DWithYZOverflow.generate",
    scope="compile",
    phase="run time",
    broken="2.11",
    symptom="On a GPU, a kernel over a grid of two dims raises ZeroDivisionError where there is nothing to compute.",
    cause="runtime/triton_heuristics.py:Grid2DWithYZOverflow.generate divides by the number of blocks.",
    cure="A grid of no blocks is 0.",
    goes="with torch 2.11",
    absent="skip",
)
def _without_division_by_zero(stock: Callable[..., None]) -> Callable[..., None]:
    def generated(self: Any, *args: Any, **kwargs: Any) -> None:
        stock(self, *args, **kwargs)
        if self.mode == "python" and "y_grid_div_ == 0" not in self.y_grid:
            self.y_grid = f"(0 if y_grid_div_ == 0 else {self.y_grid})"

    return generated


@repair(
    "torch._inductor.fx_passes.pad_mm:is_mm_compute_bound",
    "torch._inductor.fx_passes.pad_mm:should_pad_mm_bf16",
    scope="compile",
    phase="lowering",
    broken="2.11",
    symptom="On a GPU, programs of products split by sizes that matter for speed alone.",
    cause="fx_passes/pad_mm.py asks about sizes rather than their hints.",
    cure="It is asked about hints.",
    goes="with torch 2.11",
    absent="skip",
)
def _about_hints(stock: Callable[..., bool]) -> Callable[..., bool]:
    def asked(*args: Any) -> bool:
        return stock(*(a.node.hint if isinstance(a, torch.SymInt) and a.node.has_hint() else a for a in args))

    return asked
