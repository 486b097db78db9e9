"""Whether a compiled program over Python numbers does what eager does.

Owns the verdict on one: values, Python types and the sign of zeros of all that comes back, what was written to, the
type of an error, and that calls which run eagerly are counted.
"""

from __future__ import annotations

import dataclasses
import linecache
import math
import time
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from anyshape import compiler
from anyshape.fuzz import scalars
from anyshape.fuzz.oracle import Target
from anyshape.fuzz.scalars import Program

_TOLERANCE = {torch.float64: 1e-12}


@dataclasses.dataclass(frozen=True)
class Finding:
    """A program that is not what eager does."""

    number: int
    program: Program
    text: str
    static: str | None  # what torch.compile(dynamic=False) does wrong with it

    @property
    def source(self) -> str:
        calls = "".join(f"    {call}\n" for call in self.program.calls)
        return f"{self.program.source}calls:\n{calls}"


def difference(program: Program, target: Target) -> str | None:
    """The first call that differs, and how."""
    torch.compiler.reset()
    name = f"<anyshape fuzz {abs(hash(program))}>"
    linecache.cache[name] = (len(program.source), None, program.source.splitlines(True), name)
    scope = {"torch": torch, "F": F, "math": math, "tensor": _tensor}
    exec(compile(program.source, name, "exec"), scope)
    made = _compiled(scope["fn"], target)
    for number, call in enumerate(program.calls):
        want, got = _outcome(scope["fn"], call, scope), _outcome(made, call, scope)
        text = difference_of(want, got)
        if text is not None:
            return f"call {number} ({call}): {text}"
    if target.compiler == "anyshape" and not made.programs and not made.fallbacks:
        return "all calls ran eagerly, and none is counted"
    return None


def hunt(seed: int, start: int, stop: int, target: Target, *, seconds: float = 60.0) -> Iterator[Finding | None]:
    """For each program the finding, made small, or None."""
    static = dataclasses.replace(target, compiler="stock:static")
    for number, program in enumerate(scalars.programs(seed, start, stop), start):
        text = difference(program, target)
        if text is None:
            yield None
            continue
        program = shrunk(program, lambda p: difference(p, target) is not None, seconds=seconds)
        yield Finding(number, program, difference(program, target) or text, difference(program, static))


def shrunk(program: Program, fails: Callable[[Program], bool], *, seconds: float) -> Program:
    """The smallest that still fails; the best so far when the time is up."""
    deadline = time.monotonic() + seconds
    again = True
    while again:
        again = False
        for candidate in scalars.smaller(program):
            if time.monotonic() > deadline:
                return program
            if fails(candidate):
                program, again = candidate, True
                break
    return program


def _compiled(fn: Callable[..., Any], target: Target) -> Any:
    if target.compiler == "anyshape":
        return compiler.compile(fn, backend=target.backend)
    return torch.compile(fn, backend=target.backend, dynamic=False)


def _tensor(*sizes: int) -> torch.Tensor:
    return torch.arange(math.prod(sizes), dtype=torch.float32).view(sizes) / 4


def _outcome(fn: Callable[..., Any], call: str, scope: dict[str, Any]) -> tuple[Any, Any]:
    """What comes back or is raised, and the tensor that may have been written to."""
    arguments = eval(f"({call})", dict(scope))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return fn(*arguments), arguments[0]
        except Exception as error:
            return error, None


def difference_of(want: Any, got: Any) -> str | None:
    if isinstance(want, torch.Tensor) and isinstance(got, torch.Tensor):
        return _tensors_differ(want, got)
    if type(want) is not type(got):
        return f"{type(want).__name__} {want!r:.80}, compiled {type(got).__name__} {got!r:.160}"
    if isinstance(want, dict):
        return difference_of(tuple(want.items()), tuple(got.items()))
    if isinstance(want, (tuple, list)):
        if len(want) != len(got):
            return f"{len(want)} values, compiled {len(got)}"
        return next((text for pair in zip(want, got, strict=True) if (text := difference_of(*pair)) is not None), None)
    if isinstance(want, float) and not isinstance(want, bool):
        alike = want.hex() == got.hex() or (math.isnan(want) and math.isnan(got))
        return None if alike else f"{want!r}, compiled {got!r}"
    return None if isinstance(want, (Exception, types.NoneType)) or want == got else f"{want!r}, compiled {got!r}"


def _tensors_differ(want: torch.Tensor, got: torch.Tensor) -> str | None:
    if (want.dtype, want.shape) != (got.dtype, got.shape):
        return f"{want.dtype} {tuple(want.shape)}, compiled {got.dtype} {tuple(got.shape)}"
    tolerance = _TOLERANCE.get(want.dtype, 1e-5) if want.is_floating_point() else 0.0
    if torch.allclose(want, got, rtol=tolerance, atol=tolerance, equal_nan=True):
        return None
    return f"values {want.flatten()[:6].tolist()}, compiled {got.flatten()[:6].tolist()}"
