"""Rules for comparisons that give a Python bool.

torch has no fake implementation of them (2.11 to 2.15: a data-dependent operator), so each is a graph break; as a
reduction and an `item` they are captured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def equal(input: Any, other: Any) -> Any:
    if input.shape != other.shape:
        return False
    return torch.eq(input, other).all().item()


def allclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
    return torch.isclose(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan).all().item()


RULES: dict[Any, Callable[..., Any]] = {torch.equal: equal, torch.allclose: allclose}
