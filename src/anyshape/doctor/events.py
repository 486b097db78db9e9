"""Events of a program that compiles (recompiles, graph breaks, failed guards), as values.

Owns the events that an observer records and their form in JSON, one object a line, under a version. Knows nothing of
torch: events come from a live observer, from a file that one wrote, or from torch's own trace.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

VERSION: Final = 1
# How Dynamo calls the part of a function that follows a graph break.
RESUMED: Final = re.compile(r"torch_dynamo_resume_in_(?P<name>.+)_at_(?P<line>\d+)")


@dataclasses.dataclass(frozen=True)
class Run:
    """The process that was observed. Written first, so that a reader knows what follows."""

    version: int = VERSION
    command: tuple[str, ...] = ()
    torch: str = ""
    python: str = ""
    pid: int = 0
    time: float = 0.0  # seconds since the epoch; every other event counts from here


@dataclasses.dataclass(frozen=True)
class Reason:
    """One guard of one earlier program that a call failed: why that program could not serve it."""

    entry: str  # the compile id of the program that refused: 0/0
    kind: (
        str  # size | stride | rank | dtype | requires_grad | device | tensor_type | shape | value | type | length | ...
    )
    guard: str  # the guard as torch writes it, without its comment
    source: str = ""  # what it is about: L['x']
    dim: int | None = None
    expected: Any = None
    actual: Any = None
    file: str = ""  # the line that made torch ask
    line: int = 0
    code: str = ""
    asked_by: str = "user"  # user | framework
    framework: str = ""  # the line of torch that asked, where it is known


@dataclasses.dataclass(frozen=True)
class Compilation:
    """One attempt to compile one frame."""

    id: str
    name: str  # of the frame
    file: str
    line: int
    start: float
    seconds: float
    outcome: str = "compiled"  # compiled | skipped | retraced | limit | failed
    error: str = ""
    module: str = ""
    qualname: str = ""
    by: str = "stock"  # stock | anyshape
    reasons: tuple[Reason, ...] = ()
    freevars: tuple[str, ...] = ()  # names that come from a closure, not from the caller
    arguments: Mapping[str, str] = dataclasses.field(default_factory=dict)
    symbols: Mapping[str, str] = dataclasses.field(default_factory=dict)  # u0 -> L['x'].size()[0], where it failed
    guards: int = 0
    call_file: str = ""  # the line that called the compiled function
    call_line: int = 0
    call_span: tuple[int, ...] = ()  # the call in it, as `ast` counts: line, column, end line, end column
    parameters: tuple[str, ...] = ()  # of the frame, in order
    root: str = ""  # the callable that torch.compile was given, qualified: what this frame belongs to
    root_module: str = ""
    compile_file: str = ""  # the line that said torch.compile
    compile_line: int = 0
    dynamic: str = ""  # what torch.compile was told of sizes
    thread: str = ""
    pid: int = 0

    @property
    def wrapped(self) -> bool:
        """Whether the frame is torch's own, around a module of torch's that was given to it."""
        return self.module == "torch._dynamo.external_utils"

    @property
    def function(self) -> str:
        """What was compiled, as its user calls it."""
        if (part := RESUMED.match(self.name)) is not None:
            return f"{part['name']} after line {part['line']}"
        return (self.arguments.get("fn") if self.wrapped else "") or self.qualname or self.name


@dataclasses.dataclass(frozen=True)
class GraphBreak:
    """A place where torch gave up on one graph and went on with another."""

    id: str
    file: str
    line: int
    reason: str
    code: str = ""
    symbols: Mapping[str, str] = dataclasses.field(default_factory=dict)  # u0 -> L['x'].size()[0]
    time: float = 0.0
    pid: int = 0


@dataclasses.dataclass(frozen=True)
class Calls:
    """Calls that one program served at one set of sizes, since the last such event."""

    id: str
    sizes: tuple[tuple[str, tuple[int, ...]], ...]  # by source: (("L['x']", (8, 4)),)
    count: int
    time: float
    pid: int = 0


@dataclasses.dataclass(frozen=True)
class EagerCalls:
    """Calls that ran eagerly since the last such event: after the recompile limit, or without a program of anyshape."""

    id: str  # the compilation that was refused, where there is one
    name: str
    file: str
    line: int
    count: int
    time: float
    pid: int = 0
    by: str = "stock"


@dataclasses.dataclass(frozen=True)
class Code:
    """What a compilation made: the graph that was captured, or the code that was generated from it."""

    id: str
    kind: str  # graph | output
    text: str
    pid: int = 0


@dataclasses.dataclass(frozen=True)
class ProgramMade:
    """A program of anyshape, with what it assumes."""

    name: str
    file: str
    line: int
    behaviour: str
    predicates: tuple[tuple[str, str, str, int], ...]  # text, who asked, file, line
    seconds: float
    time: float
    pid: int = 0


@dataclasses.dataclass(frozen=True)
class Result:
    """What a call of a compiled function gave, in a form that two runs can be compared by."""

    index: int
    text: str  # structure, dtypes and shapes
    digest: str
    numbers: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True)
class Trouble:
    """Something that the observer could not read. It never reaches the program that is observed."""

    text: str
    pid: int = 0


@dataclasses.dataclass(frozen=True)
class End:
    """The program ended, in the way that is said here; without it, it was killed or exited hard."""

    how: str
    status: int
    time: float
    pid: int = 0


Event = Run | Compilation | GraphBreak | Calls | EagerCalls | Code | ProgramMade | Result | Trouble | End
_KINDS: Final[Mapping[str, type]] = {
    "run": Run,
    "compilation": Compilation,
    "graph_break": GraphBreak,
    "calls": Calls,
    "eager_calls": EagerCalls,
    "code": Code,
    "program": ProgramMade,
    "result": Result,
    "trouble": Trouble,
    "end": End,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}
_T = TypeVar("_T")


def to_json(event: Event) -> dict[str, Any]:
    """The event as values that `json.dumps` takes."""
    return {"event": _NAMES[type(event)]} | dataclasses.asdict(event)


def from_json(value: Mapping[str, Any]) -> Event:
    """The event of a line. Fields that this version does not know are left out; ValueError where it is no event."""
    kind = _KINDS.get(str(value.get("event")))
    if kind is None:
        raise ValueError(f"{value.get('event')!r} is no event")
    event: Event = _build(kind, value)
    return event


def _build(kind: type[_T], value: Mapping[str, Any]) -> _T:
    hints = get_type_hints(kind)
    known = {f.name: _value(hints[f.name], value[f.name]) for f in dataclasses.fields(kind) if f.name in value}  # type: ignore[arg-type]
    try:
        return kind(**known)
    except TypeError as error:
        raise ValueError(str(error)) from None


def _value(hint: Any, value: Any) -> Any:
    if get_origin(hint) is tuple and isinstance(value, list | tuple):
        inner = get_args(hint)
        if len(inner) == 2 and inner[1] is Ellipsis:
            return tuple(_value(inner[0], v) for v in value)
        return tuple(_value(h, v) for h, v in zip(inner, value, strict=False))
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return _build(hint, value)  # type: ignore[arg-type]
    return value
