"""The smallest case that still fails in the same way.

Owns the reductions, from the coarse (calls, steps) to the fine (sizes, layouts). A case is data and any text of it may
be run, so each reduction is tried as it is; whether what is left still fails is asked of `fails`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator

from anyshape.fuzz.case import NUMBER, Call, Case, Input, Step, binds

Fails = Callable[[Case], bool]


def shrink(case: Case, fails: Fails, *, seconds: float = 120.0) -> Case:
    """Reduce `case` while it fails; the best so far when the time is up."""
    deadline = time.monotonic() + seconds
    tried = {case}
    changed = True
    while changed:
        changed = False
        for reductions in _PASSES:
            again = True
            while again:
                again = False
                for smaller in reductions(case):
                    if time.monotonic() > deadline:
                        return case
                    if smaller == case or smaller in tried:
                        continue
                    tried.add(smaller)
                    if fails(smaller):
                        case, again, changed = smaller, True, True
                        break
    return case


# -- reductions ------------------------------------------------------------------------------------------------


def _fewer_calls(case: Case) -> Iterator[Case]:
    if len(case.calls) > 2:
        for call in case.calls:
            yield dataclasses.replace(case, calls=(call,))
    for i in range(len(case.calls)):
        if len(case.calls) > 1:
            yield dataclasses.replace(case, calls=case.calls[:i] + case.calls[i + 1 :])


def _fewer_results(case: Case) -> Iterator[Case]:
    if len(case.results) > 1:
        for name in case.results:
            yield _pruned(dataclasses.replace(case, results=(name,)))
        for name in case.results:
            yield _pruned(dataclasses.replace(case, results=tuple(r for r in case.results if r != name)))


def _pruned(case: Case) -> Case:
    """Without the steps that nothing given back depends on, unless they write somewhere."""
    wanted = set(case.results)
    kept: list[Step] = []
    for step in reversed(case.steps):
        if any(binds(step, name) for name in wanted):
            kept.append(step)
            wanted |= set(step.operands)
    return dataclasses.replace(case, steps=tuple(reversed(kept)))


def _fewer_steps(case: Case) -> Iterator[Case]:
    yield _pruned(case)
    names = [i.name for i in case.inputs]
    for i in reversed(range(len(case.steps))):
        step = case.steps[i]
        for stand_in in dict.fromkeys((*step.operands, *names)):
            yield _without(case, i, stand_in)


def _without(case: Case, index: int, stand_in: str) -> Case:
    """Without one step; what it made is replaced by `stand_in` wherever it was used."""
    gone = case.steps[index]
    rename = lambda name: stand_in if binds(gone, name) else name
    steps = tuple(
        dataclasses.replace(s, operands=tuple(map(rename, s.operands))) for i, s in enumerate(case.steps) if i != index
    )
    results = tuple(dict.fromkeys(map(rename, case.results)))
    return dataclasses.replace(case, steps=steps, results=results)


def _fewer_inputs(case: Case) -> Iterator[Case]:
    used = {n for s in case.steps for n in s.operands} | set(case.results)
    for i, declared in enumerate(case.inputs):
        if declared.name not in used and len(case.inputs) > 1:
            yield _with_inputs(case, tuple(j for j in range(len(case.inputs)) if j != i))
    for a in case.inputs:
        for b in case.inputs:
            if a.name in used and b.name < a.name:
                rename = lambda name, a=a, b=b: b.name if name == a.name else name
                steps = tuple(dataclasses.replace(s, operands=tuple(map(rename, s.operands))) for s in case.steps)
                yield dataclasses.replace(case, steps=steps, results=tuple(dict.fromkeys(map(rename, case.results))))


def _with_inputs(case: Case, kept: tuple[int, ...]) -> Case:
    inputs = tuple(case.inputs[i] for i in kept)
    dims = {d for i in inputs for d in i.dims}
    calls = tuple(
        Call(tuple(s for s in c.sizes if s[0] in dims), tuple(c.layouts[i] for i in kept), c.seed) for c in case.calls
    )
    return dataclasses.replace(case, inputs=inputs, calls=calls)


def _plainer(case: Case) -> Iterator[Case]:
    if case.backward:
        yield dataclasses.replace(case, backward=False)
    if case.form != "one":
        yield dataclasses.replace(case, form="one")
    for i, declared in enumerate(case.inputs):
        for plainer in _plainer_inputs(declared):
            yield dataclasses.replace(case, inputs=(*case.inputs[:i], plainer, *case.inputs[i + 1 :]))


def _plainer_inputs(declared: Input) -> Iterator[Input]:
    if declared.dtype == NUMBER:
        return
    if declared.grad:
        yield dataclasses.replace(declared, grad=False)
    if declared.dtype != "float32":
        yield dataclasses.replace(declared, dtype="float32")
    for i in range(len(declared.dims)):
        yield dataclasses.replace(declared, dims=declared.dims[:i] + declared.dims[i + 1 :])


def _plainer_calls(case: Case) -> Iterator[Case]:
    plain = tuple("contiguous" for _ in case.inputs)
    yield _with_calls(case, [dataclasses.replace(c, layouts=plain) for c in case.calls])
    yield _with_calls(case, [dataclasses.replace(c, seed=0) for c in case.calls])
    for i, call in enumerate(case.calls):
        for j, layout in enumerate(call.layouts):
            if layout != "contiguous":
                layouts = (*call.layouts[:j], "contiguous", *call.layouts[j + 1 :])
                yield _with_call(case, i, dataclasses.replace(call, layouts=layouts))
        for j, (dim, size) in enumerate(call.sizes):
            for smaller in dict.fromkeys((0, 1, 2, 3, size - 1)):
                if 0 <= smaller < size:
                    sizes = (*call.sizes[:j], (dim, smaller), *call.sizes[j + 1 :])
                    yield _with_call(case, i, dataclasses.replace(call, sizes=sizes))


def _with_call(case: Case, index: int, call: Call) -> Case:
    return _with_calls(case, [*case.calls[:index], call, *case.calls[index + 1 :]])


def _with_calls(case: Case, calls: list[Call]) -> Case:
    return dataclasses.replace(case, calls=tuple(calls))


_PASSES: tuple[Callable[[Case], Iterator[Case]], ...] = (
    _fewer_calls,
    _fewer_results,
    _fewer_steps,
    _fewer_inputs,
    _plainer,
    _plainer_calls,
)
