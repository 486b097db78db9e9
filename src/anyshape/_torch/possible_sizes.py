"""A few sets of sizes that agree with all that is known, to tell at once what that does not settle.

Owns which sets are tried. A question that two of them answer differently is open; to find that out by simplification
takes torch milliseconds, and most questions are open.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

_LOG = logging.getLogger("torch.utils._sympy.interp")
Number = int | float
Sizes = Mapping[sympy.Basic, Number]
_WANTED = ((0,), (1,), (5, 7, 11, 13, 17, 19, 23), (4_099, 4_111, 4_127, 4_129, 4_133))


def possible_sizes(env: Any) -> list[Sizes]:
    """Those of the capture first, then others that contradict nothing `env` knows."""
    return [sizes for sizes in _tried(env) if _agrees(env, sizes)]


def leave_open(possible: Sequence[Sizes], expr: sympy.Basic) -> bool:
    """Whether `expr` differs between some of these sizes."""
    values = (_value(expr, sizes) for sizes in possible)
    first = next(values, None)
    return first is not None and any(value is not None and value != first for value in values)


def _tried(env: Any) -> Iterator[Sizes]:
    hints = {s: int(n) if n.is_Integer else float(n) for s, n in env.recording.hints.items()}
    yield hints
    integers = [s for s, n in hints.items() if type(n) is int]
    for wanted in _WANTED:
        sizes = dict(hints)
        for symbol, number in zip(integers, itertools.cycle(wanted), strict=False):
            least = env.var_to_range[symbol].lower
            sizes[symbol] = max(int(least), number) if least.is_Integer else number
        for symbol, is_now in env.replacements.items():
            if symbol in sizes and (value := _value(is_now, sizes)) is not None:
                sizes[symbol] = value
        yield sizes


def _agrees(env: Any, sizes: Sizes) -> bool:
    in_range = (env.var_to_range[s].lower <= n <= env.var_to_range[s].upper for s, n in sizes.items() if type(n) is int)
    equal = itertools.chain(env.replacements.items(), env.baked.items())
    return (
        all(in_range)
        and all(_value(e, sizes) == _value(v, sizes) is not None for e, v in equal)
        and all(_value(e, sizes) == 0 for e in env.divisible)
        and all(_value(fact, sizes) is True for fact, value in env.axioms.items() if value is sympy.true)
    )


def _value(expr: sympy.Basic, sizes: Sizes) -> Number | None:
    """A number or a truth value; None where it depends on what is not known, or has no value."""
    said, _LOG.disabled = _LOG.disabled, True  # what has no value is nothing to be told of
    try:
        return sympy_interp(PythonReferenceAnalysis, sizes, expr)  # type: ignore[no-any-return]
    except Exception:  # a size born from data, `n // 0`, or a function that torch has no Python for
        return None
    finally:
        _LOG.disabled = said
