"""Compiling a captured graph for a bucket: symbol ranges and divisors as facts for Inductor.

Owns how the facts of a bucket reach Inductor (the range of a symbol, its divisor, a size inside as the hint), and which
keys the code is for: those of the bucket that answer all that was asked on the way as its hints do; and sizes beside
those that were seen.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import sympy
import torch

from anyshape._torch.compile import common_sizes
from anyshape._torch.compile.exact_sizes import Master
from anyshape._torch.fake_runs import concrete
from anyshape._torch.symbolic import python_code
from anyshape.assumptions.recording import Recording
from anyshape.variants import buckets


def job(
    master: Master,
    backend: Any,
    plan: buckets.Plan,
    text: Callable[[Any], str],
    bucket: buckets.Bucket,
    key: buckets.Key,
) -> Callable[[], common_sizes.Shared]:
    """What compiles the graph for a bucket, planned for a key in it."""
    symbols = {at: symbol for symbol, at in master.places().items()}
    facts = {symbols[a.place]: f for a, f in zip(plan.axes, plan.facts(bucket), strict=True)}
    hints = {symbol: key[at] for at, symbol in symbols.items()}

    def make(keeps_rows: bool) -> common_sizes.Shared:
        made = common_sizes.compiled(
            master,
            backend,
            facts,
            hints,
            tag=f"{[(a.place, f) for a, f in zip(plan.axes, facts.values(), strict=True)]}",
            keeps_rows=keeps_rows,
        )
        said = " and ".join(s for s in (plan.text(bucket), *(text(c) for c in made.learnt)) if s)
        other = functools.partial(make, False) if made.kept_rows else None
        return common_sizes.Shared(made.run, made.admits, said, other)

    return functools.partial(make, True)


class Moved:
    """Keys beside one that was seen."""

    def __init__(self, master: Master, recording: Recording) -> None:
        self._places = places = master.places()
        numbers: list[Any] = []
        for value, _ in master.in_key():
            numbers += [*value.shape, *value.stride()] if isinstance(value, torch.Tensor) else [value]
        self._numbers = [concrete.number_expr(n) for n in numbers]  # a key, by the sizes that stand for themselves
        self._declared = recording.declared.invariants
        self._names = {n: places[s] for s, n in recording.declared.names.items() if s in places}
        asked = [a.fact for a in (*recording.predicates.values(), *recording.requirements.values())]
        known = [fact for fact in asked if fact.free_symbols <= places.keys()]
        self._held = python_code.function(known, {s: f"v[{at}]" for s, at in places.items()})

    def __call__(self, key: buckets.Key, instead: Mapping[int, int]) -> buckets.Key | None:
        """A key with other sizes; None where the program is not for it."""
        values = {symbol: sympy.Integer(instead.get(at, key[at])) for symbol, at in self._places.items()}
        found = [n.xreplace(values) for n in self._numbers]
        if not all(n.is_Integer for n in found):
            return None
        changed = tuple(map(int, found))
        sizes = {name: changed[at] for name, at in self._names.items()}
        declared = (clause.holds(sizes) for clause in self._declared if set(clause.names) <= sizes.keys())
        return changed if all(self._held(changed)) and all(declared) else None
