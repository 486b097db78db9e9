"""The process that runs cases.

Owns what happens in a worker: it says which case it is about to run before it runs it, so that whoever started it
knows what it died of. Its output is lines of JSON; whatever else is printed goes to the error stream.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

from anyshape._torch.comparison import stock
from anyshape.fuzz import known
from anyshape.fuzz.case import Case, dumps, loads
from anyshape.fuzz.generate import generate
from anyshape.fuzz.oracle import Target, Verdict, judge
from anyshape.fuzz.repro import Finding
from anyshape.fuzz.shrink import shrink

Say = Callable[..., None]


def run(seed: int, start: int, stop: int, target: Target, say: Say, *, shrink_seconds: float) -> None:
    """Cases `start` to `stop` of a campaign."""
    drawn = generate(seed, start, stop)
    for number in range(start, stop):
        say("drawing", number=number)
        case = next(drawn)
        say("case", number=number, case=dumps(case))
        verdict = judge(case, target)
        differs = verdict.kind not in (None, "economy")
        fault = known.name(case, static_difference(case, target, verdict.call)) if differs else None
        if fault is not None:
            verdict = dataclasses.replace(verdict, kind=None, text=f"known: {fault}")
        say("verdict", number=number, **dataclasses.asdict(verdict))
        if verdict.kind is not None:
            finding = shrunk(Finding(case, verdict, target, seed, number), say, seconds=shrink_seconds)
            fault = known.name(finding.case, finding.static)
            if fault is not None:  # static compilation was right about the larger case, by chance or by error
                say("known", number=number, kind=verdict.kind, fault=fault)
                continue
            say("finding", number=number, finding=finding.json() | {"behaviours": finding.verdict.behaviours})
    say("done")


def first(
    seed: int, programs: int, target: Target, *, most_steps: int = 6, shrink_seconds: float = 60.0
) -> Finding | None:
    """The first finding of a campaign, shrunk, in this very process; None if it has none."""
    for number, case in enumerate(generate(seed, 0, programs, most_steps=most_steps)):
        verdict = judge(case, target)
        if verdict.kind is None:
            continue
        if verdict.kind != "economy" and known.name(case, static_difference(case, target, verdict.call)) is not None:
            continue
        finding = Finding(case, verdict, target, seed, number)
        return shrunk(finding, lambda event, **details: None, seconds=shrink_seconds)
    return None


def shrunk(finding: Finding, say: Say, *, seconds: float) -> Finding:
    """The finding with the smallest case that differs in the same way."""
    last: dict[Case, Verdict] = {finding.case: finding.verdict}

    def fails(case: Case) -> bool:
        say("trying", case=dumps(case))
        verdict = judge(case, finding.target)
        if verdict.kind == finding.verdict.kind:
            last[case] = verdict
        return verdict.kind == finding.verdict.kind

    case = shrink(finding.case, fails, seconds=seconds)
    say("trying", case=dumps(case))
    static = static_difference(case, finding.target, last[case].call) if finding.verdict.kind != "economy" else None
    return dataclasses.replace(finding, case=case, original=finding.case, verdict=last[case], static=static)


def static_difference(case: Case, target: Target, call: int | None = None) -> str | None:
    """What static compilation does wrong with a case, or one call of it: where it does, the fault is torch's."""
    if target.compiler != "anyshape":
        return None
    case = case if call is None else dataclasses.replace(case, calls=(case.calls[call],))
    static = dataclasses.replace(target, compiler="stock:static", variants=False)
    plain = judge(case, static)
    if plain.kind is not None:
        return plain.text
    with stock.capturing_data():
        whole = judge(case, static)
    return whole.text if whole.kind is not None and "compiled raised" not in whole.text else None


def main() -> None:
    """Arguments: one JSON object. With `case` that one is judged, with `draw` one is drawn, else a chunk is run."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    logging.disable(logging.CRITICAL)
    if given.get("memory_gib"):
        import resource

        limit = int(given["memory_gib"] * 2**30)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    def say(event: str, **details: Any) -> None:
        lines.write(json.dumps({"event": event, **details}) + "\n")

    # A fifth of the time went into looking for garbage among the objects of torch and sympy, which stay.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    target = Target(**given["target"])
    if "case" in given:
        say("verdict", number=0, **dataclasses.asdict(judge(loads(given["case"]), target)))
        return
    if "draw" in given:
        say("drawing", number=given["draw"])
        next(generate(given["seed"], given["draw"], given["draw"] + 1))
        return
    run(given["seed"], given["start"], given["stop"], target, say, shrink_seconds=given["shrink_seconds"])


if __name__ == "__main__":
    main()
