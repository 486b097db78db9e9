"""Run-time assertions of a program under size-oblivious semantics.

Owns the check that stands before a program's code: generated from the assertions of its capture and the inputs of its
graph, remembered by the sizes it is about, so that sizes seen before cost a lookup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy

from anyshape._torch.symbolic import python_code
from anyshape.assumptions.oblivious import failed
from anyshape.assumptions.recording import Recording
from anyshape.foundation import limits
from anyshape.foundation.call_keys import key_function


def checker(recording: Recording, inputs: Sequence[tuple[int, str, sympy.Expr]]) -> Callable[[Any], None] | None:
    """A function of the graph's arguments that raises where an assertion does not hold; None where there is none.

    `inputs` tells for each number of the graph's inputs the argument, how it is reached from there, and its expression.
    """
    reach: dict[sympy.Basic, str] = {}
    for index, attribute, expr in inputs:
        if expr.is_Symbol:
            reach.setdefault(expr, f"a[{index}]{attribute}")
    facts = {f: w for f, w in recording.oblivious.assertions.items() if f.free_symbols <= reach.keys()}
    if not facts:
        return None
    symbols = sorted(set().union(*(f.free_symbols for f in facts)), key=str)
    key = key_function([reach[s] for s in symbols])
    evaluate = python_code.function(list(facts), {s: f"v[{i}]" for i, s in enumerate(symbols)})
    seen: set[tuple[int, ...]] = set()
    most = limits.keys()

    def check(args: Any) -> None:
        sizes = key(args)
        if sizes in seen:
            return
        for (fact, where), holds in zip(facts.items(), evaluate(sizes), strict=True):
            if not holds:
                values = {recording.symbols[s].text: sizes[symbols.index(s)] for s in symbols if fact.has(s)}
                raise failed(recording.text(fact), where, values)
        if len(seen) < most:
            seen.add(sizes)

    return check
