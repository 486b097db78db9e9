"""Differences of stride order that no later node and no output can observe.

Owns whether it matters that a value lies in memory otherwise than captured. `x.transpose(1, 2).reshape(b * h, n, d)`
is a copy, and for `b == 1` a view: the program copies for both, and where what follows gives the same strides for
either (a matrix product does), it serves both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy

from anyshape._torch.fake_runs import concrete, verify
from anyshape.assumptions.answers import COPY_OR_VIEW, NodeRecord, Ref
from anyshape.assumptions.recording import Recording


def may_be(recording: Recording, node: NodeRecord, difference: verify.Difference, *, strict: bool) -> bool:
    """Whether a node that differs could be one of those whose strides nobody sees."""
    if not difference.only_strides or node.sharing_shows or recording.reads_strides:
        return False
    if strict and getattr(node.call, "__name__", node.call) not in COPY_OR_VIEW:
        return False
    return isinstance(node.step, int) and node.step < len(recording.steps)


def holds(recording: Recording, nodes: Sequence[NodeRecord], sizes: Mapping[sympy.Basic, sympy.Basic]) -> bool:
    """Whether the graph gives what was captured although these nodes give other strides at `sizes`."""
    try:
        return _ends(recording, nodes, concrete.ConcreteRun(sizes))
    except concrete.NotPlain:
        return False


def follow(
    recording: Recording, nodes: Sequence[NodeRecord], sizes: Mapping[sympy.Basic, sympy.Basic]
) -> tuple[bool, tuple[sympy.Basic, ...] | None]:
    """Whether that holds at `sizes`, and facts about them under which it holds elsewhere too; None if there are none
    to be told."""
    signed = frozenset(s for s, r in recording.symbols.items() if r.kind == "number")
    run = concrete.TracedRun(sizes, signed)
    try:
        with concrete.quietly():
            if _ends(recording, nodes, run):
                return True, run.questions()
    except concrete.NotPlain:
        pass
    return holds(recording, nodes, sizes), None


def _ends(recording: Recording, nodes: Sequence[NodeRecord], run: Any) -> bool:
    """Run what follows `nodes` on what they really give, until nothing differs any more."""
    begins = {node.step for node in nodes}
    differing: dict[int, Any] = {}  # what steps really give where it is not what was captured

    def value(argument: Any) -> Any:
        if not isinstance(argument, Ref):
            return run.make(argument)
        if argument.index in differing:
            return differing[argument.index]
        return run.make(recording.steps[argument.index].result)

    for index, step in enumerate(recording.steps):
        given = [a.index for a in concrete.leaves((step.args, step.kwargs)) if isinstance(a, Ref)]
        if index not in begins and differing.keys().isdisjoint(given):
            continue
        if step.opaque or step.call is None:  # an output, or a call that cannot be repeated
            return False
        try:
            with run.running(), run.mapping([recording.steps[i].result for i in given]):
                args, kwargs = concrete.map_leaves(value, (step.args, step.kwargs))
                result = concrete.call(step.call, args, kwargs)
                found = verify.compare_results(step, run, result)
        except concrete.NotPlain:
            raise
        except Exception:
            return False
        if any(not difference.only_strides for difference in found):
            return False
        if found:
            differing[index] = result
    return True
