"""The pattern for `x[torch.randperm(n)[:k]]`, which matches index reads without a slice.

Owns one repair (torch 2.11 and 2.13): Inductor has a pattern for some of them, `x[torch.randperm(n)[:k]]`, which finds
all of them too, does not find `k` there, and raises (fx_passes/misc_patterns.py). What a pattern cannot be applied to
it does not match.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from anyshape._torch.repairs.registry import repair

_INDEX = ("call_function", torch.ops.aten.index.Tensor)
_NOT_FOUND = "Not all inputs to pattern found"


@repair(
    "torch._inductor.pattern_matcher:PatternMatcherPass.apply",
    scope="compile",
    phase="lowering",
    broken="2.11-2.13",
    symptom="`x[torch.randperm(n)]` fails in Inductor: not all inputs to a pattern are found.",
    cause="fx_passes/misc_patterns.py has a pattern for `x[torch.randperm(n)[:k]]` that matches without the `k`.",
    cure="What a pattern cannot be applied to it does not match.",
    goes="with torch 2.13",
)
def apply(stock: Any) -> Any:
    def applied(self: Any, *args: Any, **kwargs: Any) -> Any:
        known = self.patterns.get(_INDEX)
        if known is None:
            return stock(self, *args, **kwargs)
        self.patterns[_INDEX] = [dataclasses.replace(e, extra_check=_applies(e.extra_check)) for e in known]
        try:
            return stock(self, *args, **kwargs)
        finally:
            self.patterns[_INDEX] = known

    return applied


def _applies(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def applies(match: Any) -> bool:
        try:
            return check(match)
        except RuntimeError as error:
            if _NOT_FOUND in str(error):
                return False
            raise

    return applies
