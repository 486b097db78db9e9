"""`col2im` (`F.fold`) as a fallback kernel on CPUs, where vectorized stores reach beyond rows.

Owns one repair: Inductor's CPU code adds whole vectors to rows that are shorter, and writes beyond them (torch 2.13).
Eager's kernel is called on CPUs, whatever the version: nothing in torch tells whether its code is mended.
"""

from __future__ import annotations

from typing import Any

import torch
import torch._inductor.lowering as inductor_lowering
from torch._inductor.decomposition import decompositions

from anyshape._torch.repairs.registry import repair

_SYMPTOM = "`F.fold`, and the gradient of `F.unfold`, write beyond the end of rows that are shorter than a vector."
_CAUSE = "codegen/cpp.py adds whole vectors with atomic_add, whatever is left of a row"


@repair(
    "torch._inductor.decomposition:decompositions[aten.col2im.default]",
    scope="compile",
    phase="lowering",
    broken="2.13",
    symptom=_SYMPTOM,
    cause=_CAUSE,
    cure="On CPUs the call is not decomposed, whatever the version: nothing in torch tells whether its code is mended.",
    goes="with torch 2.13",
    absent="skip",
)
def left_whole(stock: Any) -> Any:
    def decompose(input: Any, *args: Any, **kwargs: Any) -> Any:
        return NotImplemented if input.device.type == "cpu" else stock(input, *args, **kwargs)

    return decompose


@repair(
    "torch._inductor.lowering:lowerings[aten.col2im.default]",
    scope="compile",
    phase="lowering",
    broken="2.13",
    symptom=_SYMPTOM,
    cause=_CAUSE,
    cure="Eager's kernel is called.",
    goes="with torch 2.13",
    absent="skip",
    adds=True,
    needed=lambda: left_whole_is_possible(),
)
def kernel(stock: Any) -> Any:
    return inductor_lowering.fallback_handler(torch.ops.aten.col2im.default, add_to_fallback_set=False)


def left_whole_is_possible() -> bool:
    return torch.ops.aten.col2im.default in decompositions
