"""Divisions by sizes that may be 0.

Owns one repair (torch 2.11 to 2.15): `(n * m) // m` is `n` to torch, and `(n * m) % m` is 0, also where m is 0 and
Python raises. What is divided by is required not to be 0 where the simplified number does not tell any more.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

from anyshape._torch import concrete

_CALLS = (operator.floordiv, operator.mod)


def require(call: Any, args: Sequence[Any], result: Any) -> None:
    """Have a division of the function insist on what Python insists on."""
    if call in _CALLS and isinstance(args[1], torch.SymInt):
        divisor = concrete.number_expr(args[1])
        if not divisor.free_symbols <= _divided_by(concrete.number_expr(result)):
            torch._check(args[1] != 0, lambda: "integer division or modulo by zero")


def _divided_by(number: sympy.Basic) -> set[sympy.Basic]:
    divisions = number.atoms(FloorDiv, Mod, PythonMod)
    return set().union(*(division.args[1].free_symbols for division in divisions))
