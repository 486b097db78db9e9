"""A user's own model, over its sizes.

Owns the factory's form, the sizes that are drawn, and the report with the smallest failing call.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import random
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from anyshape import compiler, testing
from anyshape._torch.comparison import stock
from anyshape.errors import NotCompilableError
from anyshape.fuzz.oracle import Target

SIZES = (0, 1, 2, 3, 5, 7, 8, 13, 16, 17, 32)
_FIX = """def factory():
    model = MyModel()
    return model, lambda batch, seq: (torch.randn(batch, seq, 32),)"""


@dataclasses.dataclass(frozen=True)
class Difference:
    """A call that is not what eager does."""

    sizes: tuple[int, ...]
    layout: str
    text: str


@dataclasses.dataclass(frozen=True)
class Report:
    """What became of a model."""

    address: str
    names: tuple[str, ...]
    calls: int
    programs: int
    differences: tuple[Difference, ...]

    @property
    def smallest(self) -> Difference | None:
        return min(self.differences, key=lambda d: (sum(d.sizes), d.sizes, d.layout), default=None)

    def text(self) -> str:
        lines = [f"{self.address}: {self.calls} calls, {self.programs} programs, {len(self.differences)} differ"]
        worst = self.smallest
        if worst is not None:
            sizes = ", ".join(f"{n}={s}" for n, s in zip(self.names, worst.sizes, strict=True))
            lines += [f"  the smallest: {sizes}, {worst.layout}", f"    {worst.text}"]
        return "\n".join(lines)

    def json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"smallest": self.smallest and dataclasses.asdict(self.smallest)}


def load(address: str) -> tuple[Callable[..., Any], Callable[..., Any], dict[str, Sequence[int]]]:
    """What the factory gives: the model, what makes its arguments from sizes, and perhaps the sizes of each dim."""
    module, _, name = address.partition(":")
    try:
        factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise NotCompilableError(
            f"no factory at {address!r}: {error}",
            value=address,
            fix="anyshape fuzz --model my_package.my_module:factory",
            code="AS007",
        ) from error
    made = factory()
    if not isinstance(made, tuple) or len(made) not in (2, 3) or not all(map(callable, made[:2])):
        raise NotCompilableError(
            f"the factory {address!r} does not give a model and a function that makes its arguments from sizes",
            value=repr(made)[:80],
            fix=_FIX,
            code="AS007",
        )
    names = list(inspect.signature(made[1]).parameters)
    declared = made[2] if len(made) == 3 else {}
    return made[0], made[1], {n: tuple(declared.get(n, SIZES)) for n in names}


def fuzz(address: str, target: Target, *, calls: int, seed: int) -> Report:
    """Call the model with sizes drawn by `seed`, and compare each call with eager."""
    model, make, dims = load(address)
    draw = random.Random(seed)
    torch.compiler.reset()
    made = compiler.compile(model, backend=target.backend) if target.compiler == "anyshape" else _stock(model, target)
    differences = []
    with warnings.catch_warnings(), stock.measuring():
        warnings.simplefilter("ignore")
        for number in range(calls):
            sizes = _sizes(draw, dims, number)
            layout = draw.choice(("contiguous", "contiguous", "contiguous", *testing.LAYOUTS))
            torch.manual_seed(number)
            given = make(*sizes)
            arguments = testing.laid_out(given if isinstance(given, tuple) else (given,), layout)
            tolerance = 1e-3 if target.backend == "inductor" else None
            text = testing.difference(model, made, arguments, rtol=tolerance, atol=tolerance)
            if text is not None:
                differences.append(Difference(sizes, layout, text))
    programs = getattr(made, "programs", ())
    return Report(address, tuple(dims), calls, len(programs), tuple(differences))


def _sizes(draw: random.Random, dims: dict[str, Sequence[int]], number: int) -> tuple[int, ...]:
    """Equal where it can be, in every fourth call."""
    if number % 4 == 3:
        common = sorted(set.intersection(*map(set, dims.values()))) if dims else []
        if common:
            return (draw.choice(common),) * len(dims)
    return tuple(draw.choice(list(sizes)) for sizes in dims.values())


def _stock(model: Any, target: Target) -> Any:
    return torch.compile(model, backend=target.backend, dynamic=target.compiler == "stock:dynamic" or None)
