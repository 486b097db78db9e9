"""The sizes that a capture is made with: 0 and 1 stand aside for a general size first.

Owns which sizes a capture is made for: a size of 0 or 1 stands aside for another one first, so that the program is made
for all of them, and is taken as it is where that does not do.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from anyshape._torch.capture import failures, nodes
from anyshape.assumptions.declared_sizes import Declared
from anyshape.assumptions.recording import STAND_INS, Recording
from anyshape.declaration import Declaration, solver
from anyshape.declaration.entry_check import EntryCheck


def attempts(entry_check: EntryCheck | None, *, top: bool, **options: Any) -> list[Callable[..., Recording]]:
    """Ways to capture a call, the most general first."""
    asked_by: dict[str, Any] = {"locate": nodes.locate, "user_line": nodes.user_line, "in_a_kernel": nodes.in_a_kernel}
    way = functools.partial(Recording, **asked_by, retrace=failures.Retrace, top=top, **options)
    if entry_check is None or not (top or entry_check.still_holds()):
        return [*(functools.partial(way, stand_ins=s) for s in STAND_INS), functools.partial(way, exact=True)]
    declaration, policies, values = entry_check.declaration, entry_check.policies(), entry_check.values()
    plan = solver.solve_hints(declaration) if declaration.hints else {}

    def declared(stand_ins: Mapping[int, int], kept: frozenset[str] = frozenset(), **more: Any) -> Recording:
        hints = _hints(declaration, values, stand_ins, kept)
        facts = Declared(declaration, policies, hints=hints, plan=plan)
        return way(stand_ins=stand_ins, declared=facts, kept=kept, **more)

    made = [functools.partial(declared, s) for s in STAND_INS]
    return [*made, functools.partial(declared, {}, exact=True)]


def _hints(
    declaration: Declaration, values: Mapping[str, int], stand_ins: Mapping[int, int], kept: frozenset[str]
) -> dict[str, int]:
    """What each name is taken to be in a capture: its size, unless that is 0 or 1 and has a stand-in.

    A stand-in satisfies the invariants as sizes do: it is solved for, the other sizes being as they are if they can.
    """
    replaced = {
        n
        for n, v in values.items()
        if (v in stand_ins and n not in kept) or (v in STAND_INS[0] and n in declaration.oblivious_names)
    }
    if not replaced:
        return dict(values)
    given = {n: (v,) for n, v in values.items() if n not in replaced}
    given |= {n: v for n, v in declaration.hints.items() if n in replaced}
    return {n: v for n, v in solver.solve_hints(dataclasses.replace(declaration, hints=given)).items() if n in values}
