"""Results that differ by their last digits.

Owns whether two outcomes are equally good: each as near to what the same function gives in more digits. A sum in
another order may differ by more than any fixed tolerance where large numbers cancel.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from anyshape._torch.runtime import trees
from anyshape.fuzz.case import Case
from anyshape.testing import Outcome

_WIDER = {"float32": "float64", "bfloat16": "float64", "float16": "float64", "complex64": "complex128"}
_TIMES = 8  # how much further from the exact result than eager's the other may be


def widened(case: Case) -> Case | None:
    """The case in more digits; None where it has them already."""
    inputs = tuple(dataclasses.replace(i, dtype=_WIDER.get(i.dtype, i.dtype)) for i in case.inputs)
    return dataclasses.replace(case, inputs=inputs) if inputs != case.inputs else None


def are_as_near(want: Outcome, got: Outcome, exact: Outcome) -> bool:
    """Whether `got` is about as near to `exact` as `want` is."""
    leaves = [trees.leaves((o.result, o.inputs, o.gradients)) for o in (want, got, exact)]
    return len({len(found) for found in leaves}) == 1 and all(map(_is_as_near, *leaves))


def _is_as_near(want: Any, got: Any, exact: Any) -> bool:
    tensors = [t for t in (want, got, exact) if isinstance(t, torch.Tensor)]
    if len(tensors) < 3:
        return not tensors
    if len({t.shape for t in tensors}) > 1:
        return False
    if not exact.numel() or not (exact.is_floating_point() or exact.is_complex()):
        return torch.equal(want, got)
    mine, theirs = ((t.detach().to(exact.dtype) - exact.detach()).abs().max() for t in (want, got))
    return bool(theirs <= _TIMES * mine)
