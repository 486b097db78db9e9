"""Errors for calls that are not compiled: branches on data under `fullgraph=True`, new behaviors.

Owns the errors that an engine raises by itself: for a branch on what the program computes under `fullgraph=True`, and
for a behavior that is new where none may be compiled.
"""

from __future__ import annotations

from collections.abc import Sequence

from anyshape.engine.live_program import LiveProgram
from anyshape.errors import DataBranchError, NewBehaviorError


def data_branch(where: str, asked: str) -> DataBranchError:
    return DataBranchError(
        "fullgraph=True, and the program branches on a value that it computes itself",
        where=where,
        value=asked,
        fix="torch.cond(condition, when_true, when_false, operands)  to decide in the graph\n"
        "torch._check(condition)  if it always holds\n"
        "anyshape.compile(fn)  without fullgraph=True: the graph breaks there",
    )


def new_behaviour(refused: Sequence[LiveProgram]) -> NewBehaviorError:
    """What tells a call from the program that comes nearest to serving it."""
    nearest = max(refused, key=lambda p: p.calls)
    reasons = {id(p): p.admission.last for p in refused if p.admission is not None}
    for program in refused:
        reason = reasons.get(id(program))
        if reason is not None and reason.reason == "predicate":
            nearest = program
    last = reasons.get(id(nearest))
    view = nearest.view()
    asked = next((p for p in view.predicates if last is not None and p.text == last.text), None)
    differs = "something other than sizes differs" if last is None else f"it needs {last.text}"
    return NewBehaviorError(
        f"no program of {view.name} serves this call, and on_new_behavior forbids to compile one",
        where=f"{asked.file}:{asked.line}" if asked is not None else f"{view.file}:{view.line}",
        value=f"the nearest program is for {view.behavior}; {differs}",
        fix='with anyshape.warm_up(f): f(...)  or on_new_behavior="eager"',
    )
