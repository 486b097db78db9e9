"""CUDA graphs of a program with free sizes: how many are recorded.

Owns how many are recorded: torch records one for each set of sizes that a program is called with, and keeps them all.
Here sizes that come back get one, up to a limit; all others run the same kernels without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._inductor.compile_fx as compile_fx
from torch._inductor.utils import align_inputs_from_check_idxs
from torch.utils._ordered_set import OrderedSet

from anyshape._torch.repairs.registry import repair
from anyshape.foundation import limits

_MOST_COUNTED = 4_096


def are_recorded(mode: str | None, options: dict[str, Any] | None) -> bool:
    """Whether code compiled so runs as CUDA graphs."""
    if not torch.cuda.is_available():
        return False
    settings = torch._inductor.list_mode_options(mode) if mode is not None else options or {}
    return bool(settings.get("triton.cudagraphs"))


@repair(
    "torch._inductor.compile_fx:cudagraphify",
    scope="compile",
    phase="run time",
    kind="speed",
    symptom="A CUDA graph is recorded for each set of sizes, and all are kept.",
    cause="cudagraph_trees.py keys recordings by the ints that a graph is given.",
    cure="Sizes that come back get one, up to a limit; all others run the same kernels without.",
    goes="when torch bounds how many it records",
)
def cudagraphify(stock: Any) -> Any:
    def bounded(model: Callable[..., Any], static_input_idxs: Sequence[int] = (), **options: Any) -> Any:
        recorded = stock(model, static_input_idxs, **options)
        return Bounded(recorded, _Plain(model, static_input_idxs, options.get("mutated_input_idxs", ())))

    return bounded


class Bounded:
    """Called with the inputs of a compiled graph, sizes among them."""

    def __init__(self, recorded: Callable[..., Any], plain: Callable[..., Any], most: int | None = None) -> None:
        self._recorded, self._plain = recorded, plain
        self._most = limits.cuda_graphs() if most is None else most
        self.sizes: set[tuple[int, ...]] = set()  # that are recorded
        self._once: set[tuple[int, ...]] = set()  # that were called once

    def __call__(self, inputs: list[Any]) -> Any:
        key = tuple(i for i in inputs if isinstance(i, int))
        if key in self.sizes:
            return self._recorded(inputs)
        if len(self.sizes) < self._most and (not key or key in self._once):
            self.sizes.add(key)
            return self._recorded(inputs)
        if len(self._once) < _MOST_COUNTED:
            self._once.add(key)
        return self._plain(inputs)


class _Plain:
    """The kernels without a graph. They take it that inputs are aligned, which the recording sees to otherwise."""

    def __init__(self, model: Callable[..., Any], static: Sequence[int], written: Sequence[int]) -> None:
        self._model, self._static, self._written = model, static, OrderedSet(written)
        self._run: Callable[..., Any] | None = None

    def __call__(self, inputs: list[Any]) -> Any:
        if self._run is None:
            checked = compile_fx.get_input_idxs_to_check(inputs, self._static)
            self._run = align_inputs_from_check_idxs(self._model, checked, self._written)
        return self._run(inputs)
