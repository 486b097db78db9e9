"""Faults of torch itself, by name.

Owns the list of what `torch.compile(dynamic=False)` does wrong as well: such a case is counted under its name and is no
finding. Each entry has a section in `docs/reference/known-torch-bugs.md`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from anyshape.fuzz.case import Case


@dataclasses.dataclass(frozen=True)
class Known:
    """A fault of torch, and the cases that may show it."""

    name: str
    applies: Callable[[Case], bool]


def _writes_a_double_scalar(case: Case) -> bool:
    scalars = any(i.dims == () and i.dtype == "float64" for i in case.inputs)
    return scalars and any(f in ("inplace", "out") for f in case.families)


def _interpolates_nothing(case: Case) -> bool:
    empty = any(n == 0 for call in case.calls for _, n in call.sizes)
    return empty and any(s.op.startswith("interpolate") for s in case.steps)


KNOWN: tuple[Known, ...] = (
    Known("lost-scalar-write", _writes_a_double_scalar),
    Known("interpolates-nothing", _interpolates_nothing),
)


def name(case: Case, static: str | None) -> str | None:
    """The name of the fault that a case shows; `static` is what static compilation does wrong with it."""
    if static is None:
        return None
    return next((known.name for known in KNOWN if known.applies(case)), None)
