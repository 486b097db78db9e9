"""Questions of autograd's C++ formulas (FunctionsManual.cpp) for which either answer is right.

Owns the list of these questions. The formulas are C++ (FunctionsManual.cpp, torch 2.11 to 2.15) and run under the line
of the engine's call: nothing but the name of the formula and the form of the question tells them apart.
"""

from __future__ import annotations

from collections.abc import Callable

import sympy
import torch

from anyshape.assumptions.questions import is_in

_ENGINE = "torch/autograd/graph.py"
# Whether there is another half, to fill it with zeros or to count it twice: lengths of 1 and 2 have none, and to do so
# with nothing is the same.
_HALVES = ("FftR2CBackward0", "FftC2RBackward0")
# Whether there are more rows than columns: two of three matrices are multiplied first, these or those.
_PRODUCTS = ("LinalgSvdBackward0",)


def answer(
    question: sympy.Basic, truth: Callable[[sympy.Basic], sympy.Basic], locate: Callable[[], tuple[str, str]]
) -> sympy.Basic | None:
    """What a formula is told, without a word about the sizes of the call; None for all other questions."""
    asks_for_halves = isinstance(question, sympy.StrictGreaterThan) and question.rhs == 0
    compares = isinstance(question, (sympy.GreaterThan, sympy.LessThan))
    if not asks_for_halves and not compares:
        return None
    formula = torch._C._current_autograd_node()
    if formula is None or formula.name() not in (_HALVES if asks_for_halves else _PRODUCTS):
        return None
    if not is_in((_ENGINE,), locate()[1]):  # a call that the formula makes
        return None
    return sympy.true if asks_for_halves else truth(question)
