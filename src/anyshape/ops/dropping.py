"""Rules for dropout that drops nothing: its result aliases its input in eager.

It is its input in eager, and who writes to the one writes to the other. torch's decomposition makes a copy (until
2.13). Of an empty tensor it is the input as well; that is left to torch, for it would cost a program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F


def _dropout(input: Any, p: float, train: bool) -> Any:
    return input if p == 0 or (not train and 0 <= p <= 1) else torch.dropout(input, p, train)


def _functional_dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    if inplace or (training and p != 0) or not 0 <= p <= 1:
        return F.dropout(input, p, training, inplace)
    return input


def _is_copied() -> bool:
    """Whether torch's decomposition is asked for nothing and gives a copy."""
    x = torch.zeros(1, device="cpu")
    kernels = torch.ops.aten.dropout.default.py_kernels.values()
    return any(kernel(x, 0.5, False) is not x for kernel in kernels)


RULES: dict[Any, Callable[..., Any]] = {torch.dropout: _dropout, F.dropout: _functional_dropout} if _is_copied() else {}
