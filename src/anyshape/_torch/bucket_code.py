"""Code for a bucket of sizes, from a graph that was captured for all.

Owns how the facts of a bucket reach Inductor (the range of a symbol, its divisor, a size inside as the hint), and which
keys the code is for: those of the bucket that answer all that was asked on the way as its hints do; and sizes beside
those that were seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anyshape import buckets
from anyshape._torch import common_sizes, python_code
from anyshape._torch.specialise import Master
from anyshape.recording import Recording


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

    def make() -> common_sizes.Shared:
        made = common_sizes.compiled(
            master,
            backend,
            facts,
            hints,
            tag=f"{[(a.place, f) for a, f in zip(plan.axes, facts.values(), strict=True)]}",
        )
        said = [plan.text(bucket), *(text(c) for c in made.learnt)]
        return common_sizes.Shared(made.run, made.admits, " and ".join(s for s in said if s))

    return make


class Moved:
    """Keys beside one that was seen."""

    def __init__(self, master: Master, recording: Recording) -> None:
        self._places = places = master.places()
        self._equalled = _equalled(master)
        self._declared = [c for c in recording.declared.invariants if set(c.names) <= set(recording.declared.names)]
        self._names = {n: places[s] for s, n in recording.declared.names.items() if s in places}
        asked = [a.fact for a in (*recording.predicates.values(), *recording.requirements.values())]
        known = [fact for fact in asked if fact.free_symbols <= places.keys()]
        self._held = python_code.function(known, {s: f"v[{at}]" for s, at in places.items()})

    def __call__(self, key: buckets.Key, instead: Mapping[int, int]) -> buckets.Key | None:
        """A key with other sizes; None where the program is not for it. Strides that follow from sizes are left."""
        changed = list(key)
        for at, size in instead.items():
            changed[at] = size
        values = {symbol: changed[at] for symbol, at in self._places.items()}
        for symbol, env in self._equalled.items():
            said = env.replace(symbol).xreplace(values)
            if not said.is_number:
                return None
            changed[self._places[symbol]] = int(said)
        sizes = {name: changed[at] for name, at in self._names.items()}
        declared = (clause.holds(sizes) for clause in self._declared if set(clause.names) <= sizes.keys())
        return tuple(changed) if all(self._held(changed)) and all(declared) else None


def _equalled(master: Master) -> dict[Any, Any]:
    """Symbols that others stand for, and what knows which."""
    found = {}
    for value in master.placeholders:
        for number in value.shape if hasattr(value, "shape") else (value,):
            node = getattr(number, "node", None)
            if node is not None and node._expr != node.expr:
                found[node._expr] = node.shape_env
    return found
