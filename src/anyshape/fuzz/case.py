"""A generated function and the calls that are made of it, as data.

Owns the frozen values, their Python source and their JSON. Knows nothing of torch: what a step means is a template in
`operations`, and what the source does is found out by running it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from typing import Any

from anyshape.fuzz.operations import OPERATIONS

FORMS = ("one", "tuple", "list", "dict", "nested")
NUMBER = "number"  # the dtype of an input that is a Python int: the size of its one dim


@dataclasses.dataclass(frozen=True)
class Input:
    """An argument: a tensor whose dims have names, so that a call gives them sizes, or a Python int."""

    name: str
    dims: tuple[str, ...]
    dtype: str
    grad: bool = False


@dataclasses.dataclass(frozen=True)
class Step:
    """One operation: its name in the table, the name it binds, what it is given."""

    op: str
    target: str
    operands: tuple[str, ...]
    attributes: tuple[tuple[str, Any], ...] = ()

    @property
    def source(self) -> str:
        return OPERATIONS[self.op].template.format(*self.operands, t=self.target, **dict(self.attributes))


@dataclasses.dataclass(frozen=True)
class Call:
    """The size of every dim, the layout of every input, and the seed of their values."""

    sizes: tuple[tuple[str, int], ...]
    layouts: tuple[str, ...]
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class Case:
    """A function and its calls."""

    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    results: tuple[str, ...]
    calls: tuple[Call, ...]
    form: str = "tuple"
    backward: bool = False

    @property
    def source(self) -> str:
        """The function as Python; this text is what runs."""
        lines = [f"def fn({', '.join(i.name for i in self.inputs)}):"]
        for step in self.steps:
            lines += ["    " + line for line in step.source.splitlines()]
        lines.append(f"    return {self._returned()}")
        return "\n".join(lines) + "\n"

    def _returned(self) -> str:
        names = self.results
        if self.form == "one" and len(names) == 1:
            return names[0]
        if self.form == "list":
            return f"[{', '.join(names)}]"
        if self.form == "dict":
            return "{" + ", ".join(f'"{n}": {n}' for n in names) + "}"
        if self.form == "nested" and names:
            return f'{{"first": {names[0]}, "rest": ({"".join(n + ", " for n in names[1:])})}}'
        return f"({''.join(n + ', ' for n in names)})"

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(OPERATIONS[s.op].family for s in self.steps)

    @property
    def fingerprint(self) -> str:
        """A short name for it, the same everywhere."""
        return hashlib.sha256(dumps(self).encode()).hexdigest()[:12]


def reads(step: Step) -> set[str]:
    """The names that a step uses."""
    return set(step.operands)


def binds(step: Step, name: str) -> bool:
    """Whether a step makes `name`: its target, or one of several (`v3_0`, `v3_1`)."""
    return re.fullmatch(rf"{re.escape(step.target)}(_\d+)?", name) is not None


# -- JSON ------------------------------------------------------------------------------------------------------


def dumps(case: Case) -> str:
    return json.dumps(dataclasses.asdict(case), sort_keys=True)


def loads(text: str) -> Case:
    raw = json.loads(text)
    pairs = lambda items: tuple((k, _tuples(v)) for k, v in items)
    return Case(
        inputs=tuple(Input(i["name"], tuple(i["dims"]), i["dtype"], i["grad"]) for i in raw["inputs"]),
        steps=tuple(Step(s["op"], s["target"], tuple(s["operands"]), pairs(s["attributes"])) for s in raw["steps"]),
        results=tuple(raw["results"]),
        calls=tuple(Call(pairs(c["sizes"]), tuple(c["layouts"]), c["seed"]) for c in raw["calls"]),
        form=raw["form"],
        backward=raw["backward"],
    )


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value
