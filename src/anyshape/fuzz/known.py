"""Faults of torch itself, by name.

Owns the list of what `torch.compile(dynamic=False)` does wrong as well: such a case is counted under its name and is no
finding. Each entry has a section in `docs/reference/known-torch-bugs.md`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from anyshape.fuzz.case import Case, Step, binds
from anyshape.fuzz.inputs import SHORT
from anyshape.fuzz.operations import OPERATIONS


@dataclasses.dataclass(frozen=True)
class Known:
    """A fault of torch, and the cases that may show it."""

    name: str
    applies: Callable[[Case], bool]
    says: tuple[str, ...] = ("",)  # words in what static compilation does wrong, one of them
    of_eager: bool = False  # eager's own result is arbitrary, and static compilation may agree with it by chance


def _writes_in_place(case: Case) -> bool:
    return any(f in ("inplace", "out") for f in case.families)


def _has(*names: str) -> Callable[[Case], bool]:
    return lambda case: any(step.op.startswith(names) for step in case.steps)


def _multiplies_mixed_dtypes(case: Case) -> bool:
    return len({i.dtype for i in case.inputs}) > 1 and any(s.op == "try_mm" for s in case.steps)


def _attends_to_few_digits(case: Case) -> bool:
    return any(i.dtype in SHORT for i in case.inputs) and "attention" in case.families


def _is_complex(case: Case) -> bool:
    return any(i.dtype.startswith("complex") for i in case.inputs)


# Operations that look at nothing but the shape of what they are given.
_SIZES_ONLY = {"arange", "arange_float", "linspace", "eye", "zeros", "full", "like", "new_ones", "size", "numel"}
_SIZES_ONLY |= {"length", "shape_star", "max_size", "fftfreq"}


def _computes_what_nobody_reads(case: Case) -> bool:
    for step in case.steps:
        readers = [s.op for s in case.steps if any(binds(step, name) for name in s.operands)]
        if not any(binds(step, name) for name in case.results) and _SIZES_ONLY.issuperset(readers):
            return True
    return False


_VIEWS = ("view", "slicing", "joining", "inplace")  # families with operations whose result may be a view


def _writes_over_an_operand(case: Case) -> bool:
    """Whether something is written in place that may lie in the memory of another operand."""
    views: list[tuple[Step, str]] = []  # whose memory they may lie in
    for step in case.steps:
        of = [next((whose for view, whose in views if binds(view, name)), name) for name in step.operands]
        family = OPERATIONS[step.op].family
        if family == "inplace" and of[0] in of[1:]:
            return True
        if family in _VIEWS and of:
            views.insert(0, (step, of[0]))
    return False


def _writes_to_what_has_gaps(case: Case) -> bool:
    return _writes_in_place(case) and any(s.op == "select_scatter" for s in case.steps)


def _takes_medians_of_expanded(case: Case) -> bool:
    expanded = any("expanded" in call.layouts for call in case.calls) or _has("expand")(case)
    return expanded and any(step.op == "max_dim" and ("f", "median") in step.attributes for step in case.steps)


def _calls_twice_alike(case: Case) -> bool:
    calls = [(step.op, step.operands, step.attributes) for step in case.steps]
    return len(set(calls)) < len(calls)


def _asks_for_signs(case: Case) -> bool:
    return any({"signbit", "copysign"} & {value for _, value in step.attributes} for step in case.steps)


def _counts_what_was_computed(case: Case) -> bool:
    made = {name for step in case.steps if step.op == "unique" for name in step.operands}
    return any(binds(step, name) for step in case.steps for name in made)


KNOWN: tuple[Known, ...] = (
    Known(
        "interpolates-nothing",
        _has("interpolate"),
        says=("sizes should be greater than 0", "Non-empty 3D data tensor expected"),
    ),
    Known("unread-errors", _computes_what_nobody_reads),
    Known("mixed-products", _multiplies_mixed_dtypes, says=("have the same dtype",)),
    Known("overlapping-operands", _writes_over_an_operand),
    Known("pads-nothing", _has("pad"), says=("length must be non-negative",)),
    Known("masked-writes", _has("setitem_mask", "masked_fill_"), says=("strides",)),
    Known("unshared-squeezes", _has("squeeze"), says=("share memory",)),
    Known("complex-views", _is_complex, says=("must be 1 to view",)),
    Known("dropped-nothing", _has("dropout"), says=("a leaf Variable that requires grad",)),
    Known("saved-and-written", _writes_in_place, says=("needed for gradient computation",)),
    Known("transposed-in-place", _has("transpose_"), says=("strides", "application of ViewMeta sequence")),
    Known("gaps-written-to", _writes_to_what_has_gaps, says=("strides",)),
    Known("warned-and-raised", lambda case: True, says=("returned a result with an exception set",)),
    Known("more-digits", _attends_to_few_digits, says=("values",)),
    Known("interpolates-in-other-digits", _has("interpolate"), says=("values",)),
    Known("resized-under-views", _has("out_"), says=("shape",)),
    Known("medians-of-expanded", _takes_medians_of_expanded, of_eager=True),
    Known("strides-of-norms", _has("batch_norm"), says=("strides",)),
    Known("equal-results", _calls_twice_alike, says=("share memory",)),
    Known("signs-of-nan", _asks_for_signs, of_eager=True),
    Known("unequal-digits", _counts_what_was_computed, says=("shape",)),
)


def name(case: Case, static: str | None) -> str | None:
    """The name of the fault that a case shows; `static` is what static compilation does wrong with it."""
    for known in KNOWN:
        shows = known.of_eager if static is None else any(words in static for words in known.says)
        if shows and known.applies(case):
            return known.name
    return None
