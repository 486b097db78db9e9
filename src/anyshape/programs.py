"""`Program`, `Variant`, `Predicate`: the frozen views that `f.programs` gives.

Owns the frozen views that `f.programs` returns. Knows nothing of torch.
"""

from __future__ import annotations

import dataclasses

from anyshape.errors import warn_old_name


@dataclasses.dataclass(frozen=True)
class Predicate:
    """A check on sizes that must have the same answer for a program to serve a call."""

    text: str  # in the words of the user: x.shape[0] > 8
    asked_by: str  # user | framework
    file: str
    line: int

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class Variant:
    """Faster code for a narrower set of sizes, compiled from the same graph."""

    text: str
    calls: int
    seconds: float
    code_bytes: int = 0  # of machine code that was loaded while it was made; what is loaded stays


@dataclasses.dataclass(frozen=True)
class OutCall:
    """A call with `out=` inside a program, for one of its buffers."""

    op: str
    buffer: str  # in the words of the user: the argument, or nothing where the function made the buffer itself
    file: str
    line: int
    direct: bool  # the kernel writes to the buffer; else its result is copied there
    reason: str  # why not

    def __str__(self) -> str:
        where = f"{self.op}(out={self.buffer or '...'})"
        return f"{where} writes to the buffer" if self.direct else f"{where} copies: {self.reason}"


@dataclasses.dataclass(frozen=True)
class Merge:
    """Sizes that a program serves although they answer a predicate of its own otherwise: both compute the same."""

    answered: tuple[Predicate, ...]  # as the sizes that joined answer
    instead_of: tuple[Predicate, ...]  # the program's own

    def __str__(self) -> str:
        answered, own = (" and ".join(p.text for p in each) for each in (self.answered, self.instead_of))
        return f"{answered} computes the same as {own}"


@dataclasses.dataclass(frozen=True)
class Program:
    """One compiled program: what it assumes, what it has served, and what it cost."""

    name: str  # the function or resumed part it was captured from
    file: str
    line: int
    predicates: tuple[Predicate, ...]
    requirements: tuple[str, ...]  # what the framework insists on; a call that breaks one runs eagerly
    classes: int
    variants: tuple[Variant, ...]
    calls: int
    capture_seconds: float
    compile_seconds: float
    verify_seconds: float
    graph_breaks: tuple[str, ...]
    out_calls: tuple[OutCall, ...] = ()
    dropped: tuple[str, ...] = ()  # variants that were given up, and why
    merges: tuple[Merge, ...] = ()
    assertions: tuple[str, ...] = ()  # what it asserts of each call, under oblivious semantics
    verifications: int = 0  # nodes run on fake tensors since the capture, each to learn a local class
    untold: tuple[str, ...] = ()  # nodes that are run for each new size that answers otherwise, and why
    conditions: tuple[str, ...] = ()  # what tells it from other programs besides sizes: self.steps == 3

    @property
    def behavior(self) -> str:
        """The calls it serves, in a line: their sizes, and what else other programs do not serve."""
        return " and ".join((*self.conditions, *(p.text for p in self.predicates))) or "every size"

    @property
    def behaviour(self) -> str:
        """The old name of `behavior`."""
        warn_old_name("program.behaviour", "program.behavior", stacklevel=3)
        return self.behavior

    def json(self) -> dict[str, object]:
        """The same as values that `json.dumps` takes."""
        return dataclasses.asdict(self) | {"behavior": self.behavior}
