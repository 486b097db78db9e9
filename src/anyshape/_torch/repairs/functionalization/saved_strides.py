"""Strides of tensors saved for backward, kept symbolic.

Owns one repair (torch 2.11 and 2.13; 2.15 does so itself): Inductor lays out what is kept as it likes, and AOTAutograd
has the gradient compiled for those strides as numbers, the ones of the first sizes (`_aot_stage2b_bw_compile`). At
others the gradient raised. They stay expressions of the sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
import torch._functorch._aot_autograd.graph_compile as graph_compile
from torch.fx.experimental.symbolic_shapes import ShapeEnv, statically_known_true

from anyshape._torch.repairs.registry import repair
from anyshape._torch.symbolic.shape_env import FreeShapeEnv

_AS_NUMBERS = "evaluate_symexpr"  # gone where strides stay expressions


@repair(
    "torch._functorch._aot_autograd.graph_compile:_aot_stage2b_bw_compile",
    scope="compile",
    phase="AOT",
    broken="2.11-2.13",
    symptom="The gradient raises at other sizes than the first: an expected stride is a number.",
    cause="graph_compile.py:_aot_stage2b_bw_compile has the gradient compiled for strides as numbers.",
    cure="Strides of what is kept for the gradient stay expressions of the sizes.",
    goes="with torch 2.13; 2.15 keeps them itself",
    absent="skip",
    needed=lambda: hasattr(ShapeEnv, _AS_NUMBERS),
)
def compile_backward(stock: Any) -> Any:
    def compile_gradient(
        graph: Any, subclasses: Any, told: Any, strides: list[Any] | None, symints: int, *rest: Any
    ) -> Any:
        if strides is None:
            return stock(graph, subclasses, told, strides, symints, *rest)
        kept = graph_compile._get_inner_meta(subclasses, told).tensors_saved_for_backwards_slice
        inputs = graph.graph.find_nodes(op="placeholder")[symints:]
        left = list(strides)
        left[kept] = [
            None if _lay_out(node, laid_out) else laid_out
            for node, laid_out in itertools.zip_longest(inputs[: len(strides[kept])], strides[kept])
        ]
        return stock(graph, subclasses, told, left, symints, *rest)

    return compile_gradient


def _lay_out(node: Any, strides: Sequence[Any] | None) -> bool:
    """Give an input of the gradient the strides that it has; False if they are none of free sizes."""
    value = None if node is None else node.meta.get("val")
    if strides is None or not isinstance(value, torch.Tensor) or not any(map(_is_free, (*strides, *value.stride()))):
        return False
    if not all(statically_known_true(own == other) for own, other in zip(value.stride(), strides, strict=True)):
        node.meta["val"] = value.new_empty_strided(value.shape, tuple(strides))
    return True


def _is_free(stride: Any) -> bool:
    return isinstance(stride, torch.SymInt) and isinstance(stride.node.shape_env, FreeShapeEnv)
