"""The diseases that the doctor knows, and what it says when it has found one.

Owns the codes, each for ever and each with a part of its own in the documentation (reference/findings), and the
values `Finding` and `Remedy`. Knows nothing of torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

SEVERITIES: Final = ("error", "warning", "note")


@dataclasses.dataclass(frozen=True)
class Disease:
    """A way in which compiling goes wrong."""

    code: str
    name: str
    title: str
    severity: str
    advice: str  # what to do where no declaration helps


_ALL: Final = (
    Disease("D101", "zero-one", "sizes 0 and 1 get programs of their own", "warning",
            "mark the dim unbacked, or compile with anyshape"),
    Disease("D102", "size-change", "a size was taken for a constant until it changed", "note",
            "mark the dim dynamic before the first call"),
    Disease("D103", "size-equality", "a size was tied to a number or to another size", "warning",
            "take the operation that fixes the size out of the compiled function"),
    Disease("D104", "size-branch", "a branch of the program depends on a size", "note",
            "a program for each side is what the branch asks for; declare the side that always holds"),
    Disease("D105", "layout", "a tensor came in another layout", "warning", "make it contiguous before the call"),
    Disease("D106", "out", "an out= call fixes the sizes it is given", "warning",
            "use the result of the call without out=, and copy it into the buffer"),
    Disease("D107", "python-value", "a Python value is part of the program", "warning",
            "pass it as a tensor, or keep it out of the compiled function"),
    Disease("D108", "dtype", "a tensor came in another dtype", "warning", "cast to one dtype before the call"),
    Disease("D109", "requires-grad", "gradients are asked for in one call and not in another", "warning",
            "call it under one grad mode, and detach what needs no gradient"),
    Disease("D110", "module-attribute", "an attribute of a module changes between calls", "warning",
            "keep it in a buffer: self.register_buffer(name, torch.tensor(value))"),
    Disease("D111", "global", "a global or a variable of a closure changes between calls", "warning",
            "pass it as an argument, as a tensor if it changes often"),
    Disease("D112", "parameter", "a Parameter comes where a Tensor came before", "warning",
            "pass one kind only: p.view_as(p) is a Tensor that still reaches the Parameter"),
    Disease("D113", "growing", "a container that the guards count grows", "warning",
            "pass a tensor that grows in one dim, or keep the container out of the compiled function"),
    Disease("D114", "another-kind", "an argument is another kind of thing than before", "warning",
            "give each kind a compiled function of its own"),
    Disease("D120", "dde-user", "your code asks about a value that is only known at run time", "error",
            "say what holds with torch._check before the branch, or keep the branch out of the compiled function"),
    Disease("D121", "dde-framework", "torch asks about a size that is only known at run time", "error",
            "compile with anyshape, or say what holds with torch._check before the call"),
    Disease("D122", "graph-break", "torch could not put this into one graph", "warning",
            "see the reason that torch gives"),
    Disease("D123", "failed", "a compilation failed", "error", "see the error that torch gives"),
    Disease("D130", "limit", "the recompile limit was reached: new sizes run eagerly from now on", "error",
            "remove the cause of the recompiles; a higher limit only buys time"),
    Disease("D140", "strided-empty", "strides are computed by hand where torch.empty would do", "warning",
            "use torch.empty: it is dense by construction, and nothing has to be asked about strides"),
    Disease("D141", "early-layout", "a layout property is asked for before it is needed", "warning",
            "ask where the answer is used, or call .contiguous(), which asks for nothing"),
)  # fmt: skip
DISEASES: Final[Mapping[str, Disease]] = MappingProxyType({d.code: d for d in _ALL})
BY_NAME: Final[Mapping[str, Disease]] = MappingProxyType({d.name: d for d in _ALL})


@dataclasses.dataclass(frozen=True)
class Remedy:
    """One thing to do about a finding, and how the doctor can try it."""

    kind: str  # environment | config | anyshape | contiguous | plain | advice
    text: str  # to be pasted
    toml: str = ""  # the same for anyshape.toml
    settings: tuple[tuple[str, str], ...] = ()  # what a run with the remedy needs: variables, flags, arguments

    @property
    def applicable(self) -> bool:
        """Whether a run with it can be made without touching the program."""
        return self.kind != "advice"


@dataclasses.dataclass(frozen=True)
class Trial:
    """A run with remedies, beside the run without."""

    remedy: str
    compiles_before: int
    compiles_after: int
    seconds_before: float
    seconds_after: float
    outputs: str  # equal | different | unknown
    detail: str = ""

    @property
    def helps(self) -> bool:
        return self.outputs != "different" and self.compiles_after < self.compiles_before


@dataclasses.dataclass(frozen=True)
class Finding:
    """A disease, where it is, what changed, and what it cost."""

    code: str
    file: str
    line: int
    source_line: str
    function: str
    argument: str
    dim: int | None
    values: tuple[Any, ...]
    seconds: float
    compiles: int
    detail: str
    remedy: Remedy
    others: tuple[Remedy, ...] = ()  # what to try where the first does not help
    trial: Trial | None = None
    asked_by: str = "user"
    ids: tuple[str, ...] = ()

    @property
    def disease(self) -> Disease:
        return DISEASES[self.code]

    @property
    def subject(self) -> str:
        """What it is about: x.shape[0], or the name of an argument."""
        return self.argument if self.dim is None else f"{self.argument}.shape[{self.dim}]"

    @property
    def rank(self) -> tuple[int, float]:
        return SEVERITIES.index(self.disease.severity), -self.seconds

    def json(self) -> dict[str, Any]:
        found = dataclasses.asdict(self)
        found |= {"title": self.disease.title, "severity": self.disease.severity, "subject": self.subject}
        found["remedy"] = _remedy(self.remedy)
        found["others"] = [_remedy(r) for r in self.others]
        found["values"] = [v if isinstance(v, int | float | bool | str | type(None)) else str(v) for v in self.values]
        return found


def _remedy(remedy: Remedy) -> dict[str, Any]:
    return {
        "kind": remedy.kind,
        "text": remedy.text,
        "toml": remedy.toml,
        "settings": [list(s) for s in remedy.settings],
    }
