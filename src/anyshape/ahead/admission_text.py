"""What a program admits, as Python text of ints.

Owns the function of a key that a loaded program asks first. It knows what has been verified for all sizes that answer
alike, and says where that is not enough; it needs neither expressions nor torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from anyshape._torch import python_code
from anyshape.ahead.admitted import ADMITTED, UNTOLD
from anyshape.dispatch import AOT, Admission


def told(admission: Admission) -> tuple[str, tuple[str, ...]]:
    """The text of `evaluate(v)`, and for each answer what it says; empty where there is no such text."""
    answers = admission.answers
    laid_out = [_laid_out(*layout, signals=admission.convolves) for layout in admission.layout]
    lines = [f"if not {text}: return {UNTOLD}" for text in laid_out]
    for i, answer in enumerate(answers):
        lines.append(f"if bool({python_code.expression(answer.expr)}) is not {answer.outcome}: return {i}")
    for i, (node, _, _) in enumerate(admission.nodes):
        lines.append(
            f"if not ({_verified(admission, admission.first_like(i), node.decisions.values())}): return {UNTOLD}"
        )
    aot = _verified(admission, AOT, admission.recording.aot_decisions.values())
    lines.append(f"return {ADMITTED} if {aot} else {UNTOLD}")
    text = python_code.text(dict.fromkeys(lines), admission.places)
    if any(a.outcome is None for a in answers) or not text:
        return "", ()
    return text, tuple(admission.recording.text(a.fact) for a in answers)


def _laid_out(start: int, dims: int, strides: Sequence[Any], *, signals: bool) -> str:
    """Where nothing is addressed, strides say nothing, but for those of an image or signal: it may be channels last."""
    wanted = map(python_code.expression, strides)
    same = [f"v[{start + dims + i}] == {text}" for i, text in enumerate(wanted)]
    if dims not in (4, 5) and not (signals and dims in (2, 3)):
        same = [f"v[{start + i}] <= 1 or {text}" for i, text in enumerate(same)]
    return f"(0 in v[{start}:{start + dims}] or {' and '.join(f'({e})' for e in same)})" if same else "True"


def _verified(admission: Admission, place: int, answers: Iterable[Any]) -> str:
    """The capture's own answers, or those under which it was verified."""
    ways: list[list[tuple[Any, Any]]] = [[(a.expr, a.outcome) for a in answers]]
    ways += [[(fact, True) for fact in facts] for facts, _ in admission.paths.get(place, ())]
    return " or ".join(dict.fromkeys(map(_all, ways)))


def _all(facts: Iterable[tuple[Any, bool | None]]) -> str:
    texts = dict.fromkeys(f"bool({python_code.expression(e)}) is {outcome}" for e, outcome in facts)
    return f"({' and '.join(texts)})" if texts else "True"
