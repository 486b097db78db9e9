"""The diseases that the doctor knows, and what it says when it has found one.

Owns the codes, each for ever and each with a part of its own in the documentation (reference/findings), and the
values `Finding` and `Remedy`. Knows nothing of torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from anyshape.doctor.edits import Edit

SEVERITIES: Final = ("error", "warning", "note")
_NAMED: Final = 6  # subjects that a title has room for


@dataclasses.dataclass(frozen=True)
class Disease:
    """A way in which compiling goes wrong."""

    code: str
    name: str
    title: str
    severity: str
    advice: str  # what to do where no declaration helps


_ALL: Final = (
    Disease("D101", "zero-one", "sizes 0 and 1 are specialized", "warning",
            "mark the dim unbacked with torch._dynamo.decorators.mark_unbacked before the first call"),
    Disease("D102", "size-change", "a size was specialized until it changed", "note",
            "mark the dim dynamic before the first call"),
    Disease("D103", "size-equality", "a size is specialized to a number or to another size", "warning",
            "move the operation that fixes the size out of the compiled function"),
    Disease("D104", "size-branch", "a branch of your code depends on a size or a number", "note",
            "each side needs a program; if one side always holds, declare it with where=[...]"),
    Disease("D105", "layout", "a tensor came in another layout", "warning", "make it contiguous before the call"),
    Disease("D106", "out", "an out= call specializes the sizes of its arguments", "warning",
            "call it without out=, and copy the result into the buffer"),
    Disease("D107", "python-value", "a Python value is specialized", "warning",
            "each value needs a program; read it outside the compiled function, and pass in what follows from it"),
    Disease("D108", "dtype", "a tensor came in another dtype", "warning", "cast to one dtype before the call"),
    Disease("D109", "requires-grad", "requires_grad or grad mode changes between calls", "warning",
            "call it under one grad mode, and detach what needs no gradient"),
    Disease("D110", "module-attribute", "an attribute of a module or object changes between calls", "warning",
            "change it outside the compiled function, or keep a number in a buffer (self.register_buffer)"),
    Disease("D111", "global", "a global or closure variable changes between calls", "warning",
            "pass it as an argument, as a tensor if it changes often"),
    Disease("D112", "parameter", "a Parameter is passed where a Tensor was passed before", "warning",
            "pass one kind only: p.view_as(p) is a Tensor through which gradients reach the Parameter"),
    Disease("D113", "growing", "a container grows, and torch guards on its length", "warning",
            "pass a tensor that grows in one dim, or keep the container out of the compiled function"),
    Disease("D114", "another-kind", "an argument changes its type, its rank or its keys", "warning",
            "compile one function for each kind of argument"),
    Disease("D115", "aliasing", "two arguments alias in one call and not in another", "warning",
            "where both are the same tensor, pass a copy (x.clone()), if the function writes to neither"),
    Disease("D116", "storage-offset", "a tensor has another storage offset", "warning",
            "read storage_offset() outside the compiled function, or pass a copy, whose offset is 0"),
    Disease("D117", "setting", "autocast or another setting of torch changes between calls", "warning",
            "call it under one setting, or compile one function for each setting"),
    Disease("D120", "dde-user", "your code branches on a data-dependent value", "error",
            "put the branch into the graph with torch.cond, or move it out of the compiled function; "
            "if one side always holds, say so with torch._check"),
    Disease("D121", "dde-framework", "torch branches on a data-dependent size", "error",
            "say what holds with torch._check before the call"),
    Disease("D122", "graph-break", "graph break: torch could not capture this in one graph", "warning",
            "see the reason that torch gives"),
    Disease("D123", "failed", "a compilation failed", "error", "see the error that torch gives"),
    Disease("D130", "limit", "the recompile limit was reached: calls that no program serves run eagerly", "error",
            "remove the cause of the recompiles; a higher limit only delays the problem"),
    Disease("D140", "strided-empty", "strides are computed by hand where torch.empty would do", "warning",
            "use torch.empty: its result is dense, so torch does not have to check the strides"),
    Disease("D141", "early-layout", "a layout property is read before it is needed", "warning",
            "read it where it is used, or call .contiguous(), which checks nothing"),
)  # fmt: skip
DISEASES: Final[Mapping[str, Disease]] = MappingProxyType({d.code: d for d in _ALL})


@dataclasses.dataclass(frozen=True)
class Remedy:
    """One thing to do about a finding, in the one way in which it is offered and tried."""

    kind: str  # environment | anyshape | declared | config | contiguous | plain | advice
    text: str  # to be pasted, or an edit of the code in words
    toml: str = ""  # what anyshape.toml is to say, where that is the remedy
    settings: tuple[tuple[str, str], ...] = ()  # variables of the environment
    edits: tuple[Edit, ...] = ()  # of the program's files

    @property
    def applicable(self) -> bool:
        """Whether a run with it can be made."""
        return bool(self.toml or self.settings or self.edits)

    @property
    def key(self) -> tuple[Any, ...]:
        """Two remedies with one key are one run."""
        return self.toml, self.settings, self.edits

    def json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "text": self.text,
            "toml": self.toml,
            "settings": [list(s) for s in self.settings],
            "edits": [dataclasses.asdict(e) for e in self.edits],
        }


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
    eager_before: int = 0  # calls that ran eagerly
    eager_after: int = 0

    @property
    def helps(self) -> bool:
        return self.outputs != "different" and self.compiles_after < self.compiles_before

    @property
    def slower(self) -> bool:
        """Whether compiling took longer in all, by more than two runs of one program differ on a busy machine."""
        return self.seconds_after > 1.25 * self.seconds_before + 0.5


@dataclasses.dataclass(frozen=True)
class Subject:
    """A thing that changed: a size, a stride or a value of an argument, with what was seen of it."""

    argument: str
    dim: int | None
    values: tuple[Any, ...]
    what: str = "shape"  # of the dim: shape | stride
    source: str = ""  # as torch names it: L['x']

    @property
    def text(self) -> str:
        """x.shape[0], x.stride(0), or the name of an argument."""
        if self.dim is None:
            return self.argument
        return f"{self.argument}.stride({self.dim})" if self.what == "stride" else f"{self.argument}.shape[{self.dim}]"


@dataclasses.dataclass(frozen=True)
class Finding:
    """A disease, where it is, what changed, and what it cost."""

    code: str
    file: str
    line: int
    source_line: str
    function: str
    argument: str  # of the first subject
    dim: int | None
    values: tuple[Any, ...]
    seconds: float
    compiles: int
    detail: str
    remedy: Remedy
    others: tuple[Remedy, ...] = ()  # other ways, in the order in which they are tried
    trial: Trial | None = None
    asked_by: str = "user"
    ids: tuple[str, ...] = ()
    subjects: tuple[Subject, ...] = ()  # all that changed: several arguments can have one disease at one line
    eager_calls: int = 0  # that ran eagerly because of it
    tried: bool = False  # whether the remedies were tried: then `remedy` helped, or is advice

    @property
    def disease(self) -> Disease:
        return DISEASES[self.code]

    @property
    def about(self) -> tuple[Subject, ...]:
        if self.subjects or not self.argument:
            return self.subjects
        return (Subject(self.argument, self.dim, self.values),)

    @property
    def subject(self) -> str:
        """What it is about: x.shape[0], or the names of all arguments that have it."""
        texts = list(dict.fromkeys(s.text for s in self.about))
        return ", ".join(texts[:_NAMED]) + (f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else "")

    @property
    def rank(self) -> tuple[int, float]:
        return SEVERITIES.index(self.disease.severity), -self.seconds

    def json(self) -> dict[str, Any]:
        found = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        found |= {"title": self.disease.title, "severity": self.disease.severity, "subject": self.subject}
        found["remedy"] = self.remedy.json()
        found["others"] = [r.json() for r in self.others]
        found["values"] = [_plain(v) for v in self.values]
        found["subjects"] = [
            {"argument": s.argument, "dim": s.dim, "what": s.what, "values": [_plain(v) for v in s.values]}
            for s in self.about
        ]
        found["trial"] = None if self.trial is None else dataclasses.asdict(self.trial)
        return found


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | bool | str | type(None)) else str(value)
