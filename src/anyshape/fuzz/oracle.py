"""Whether a compiled case does what eager does.

Owns the verdict on one case: every call compared with eager, and the number of programs with the number of ways in
which eager acts on the sizes of the calls. How two outcomes differ is told by `testing`.
"""

from __future__ import annotations

import collections
import dataclasses
import linecache
import sys
import time
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from anyshape import compiler, testing
from anyshape._torch.comparison import eager_behaviors, stock
from anyshape.engine.engine import UNCHECKED, UNSUITED
from anyshape.errors import NotCompilableError
from anyshape.fuzz import devices, inputs, rounding
from anyshape.fuzz.case import NUMBER, Call, Case
from anyshape.variants.hot_sizes import NOT_COMPILED

COMPILERS = ("anyshape", "stock:static", "stock:dynamic", "stock:unbacked", "eager")
_STOCK = {"stock:dynamic": "dynamic=True", "stock:unbacked": "mark_unbacked"}
# Inductor fuses and reorders; what it may do to a value is not what is looked for here.
_TOLERANCE = {"inductor": 1e-3}
_SHORT_TOLERANCE = {"inductor": 2e-2}  # with dtypes of two or three digits
ROUNDS = 3  # a size is seen, then asked for and made, then served by its variant

# A size becomes the length of a Python list here, which no aten call shows.
_UNCOUNTED = {"tolist"}
# A program that raises where eager does not is wrong, though the caller does not see it.
_WRONG = {UNSUITED, UNCHECKED}


@dataclasses.dataclass(frozen=True)
class Target:
    """What is tested: a compiler and its backend."""

    compiler: str = "anyshape"
    backend: str = "aot_eager"
    economy: bool = True  # whether more programs than behaviors are a finding
    variants: bool = False  # whether every size gets code of its own, and is called again until that serves it
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.compiler not in COMPILERS:
            raise NotCompilableError(
                f"compiler {self.compiler!r} is not one of {', '.join(COMPILERS)}",
                value=self.compiler,
                fix="anyshape fuzz --compiler anyshape",
                code="AS007",
            )
        if self.variants and (self.compiler, self.backend) != ("anyshape", "inductor"):
            raise NotCompilableError(
                "only what anyshape compiles with Inductor has variants",
                value=f"{self.compiler} with {self.backend}",
                fix="anyshape fuzz --variants --backend inductor",
                code="AS007",
            )


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What became of one case."""

    kind: str | None = None  # None, or what differs: error, shape, dtype, strides, values, sharing, economy, ...
    text: str = ""
    call: int | None = None
    programs: int = 0
    behaviours: int = 0
    variants: int = 0
    fallbacks: int = 0
    raised: int = 0  # calls in which eager raised
    eagerly: tuple[str, ...] = ()  # why calls ran eagerly in which eager raised nothing
    seconds: float = 0.0


def function(case: Case, device: str = "cpu") -> Callable[..., Any]:
    """The function that the case's source defines, in a module of its own, with lines that tracebacks can show."""
    source = devices.source(case, device)
    name = f"<anyshape fuzz {case.fingerprint}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    module = types.ModuleType(f"anyshape_fuzz_{case.fingerprint}")
    sys.modules[module.__name__] = module  # export looks globals up there
    module.__dict__.update(torch=torch, F=F)
    exec(compile(source, name, "exec"), module.__dict__)
    return module.__dict__["fn"]  # type: ignore[no-any-return]


def compiled(fn: Callable[..., Any], target: Target, case: Case) -> Any:
    """`fn` as the target compiles it."""
    if target.compiler == "anyshape":
        return compiler.compile(fn, backend=target.backend, **(for_every_size(case) if target.variants else {}))
    if target.compiler == "eager":
        return fn
    if target.compiler == "stock:static":
        return torch.compile(fn, backend=target.backend, dynamic=False)
    free = [range(len(i.dims)) if i.dtype != "number" else () for i in case.inputs]
    return stock.compile(fn, mode=_STOCK[target.compiler], backend=target.backend, free=free)


def for_every_size(case: Case) -> dict[str, Any]:
    """A declaration that names every dim of the tensors and asks for code of its own for every size."""
    tensors = [i for i in case.inputs if i.dtype != NUMBER and i.dims]
    named = dict.fromkeys(d for i in tensors for d in i.dims)
    if not named:
        return {}
    return {"shapes": {i.name: " ".join(i.dims) for i in tensors}, "specialize": [f"{d} >= 0" for d in named]}


def tolerance_of(case: Case, backend: str) -> float | None:
    """What values may differ by, relatively and absolutely; None where it is the rounding of their dtype."""
    short = any(i.dtype in inputs.SHORT for i in case.inputs)
    return (_SHORT_TOLERANCE if short else _TOLERANCE).get(backend)


def judge(case: Case, target: Target) -> Verdict:
    """Compare every call of a case with eager."""
    began = time.perf_counter()
    torch.compiler.reset()
    fn = function(case, target.device)
    tolerance = tolerance_of(case, target.backend)
    seen: set[Any] = set()
    eagerly: list[str] = []
    raised = 0
    with warnings.catch_warnings(), stock.measuring():
        warnings.simplefilter("ignore")
        try:
            made = compiled(fn, target, case)
        except Exception as error:
            return Verdict("error", f"compile raised {type(error).__name__}: {error}", None)
        rounds = ROUNDS if target.variants else 1
        for number, call in [*enumerate(case.calls)] * rounds:
            if target.variants:
                made.wait()
            arguments = inputs.arguments(case, call, target.device)
            before = collections.Counter(getattr(made, "fallbacks", {}))
            want, got, signature = _both(fn, made, arguments, case.backward)
            raises = want.error is not None
            # Where both raise, the outcome is the exception; what had been written by then is nobody's promise.
            alike = raises and type(want.error) is type(got.error)
            text = None if alike else testing.outcome_difference(want, got, tolerance, tolerance)
            eagerly += [] if raises else collections.Counter(getattr(made, "fallbacks", {})) - before
            seen.add((signature, call.layouts))  # a layout may have a program of its own
            raised += raises
            if text is not None:
                excuse = _excuse(case, call, target, want, got, text)
                kind, text = (None, excuse) if excuse is not None else (_kind(text), text)
                return Verdict(kind, text, number, seconds=time.perf_counter() - began)
    programs, fallbacks = _programs(made)
    verdict = Verdict(
        programs=programs,
        behaviours=len(seen),
        variants=len(made.variants) if target.compiler == "anyshape" else 0,
        fallbacks=fallbacks,
        raised=raised,
        eagerly=tuple(eagerly),
        seconds=time.perf_counter() - began,
    )
    if wrong := _WRONG & set(eagerly):
        return dataclasses.replace(verdict, kind="error", text=f"compiled raised, and eager was called: {min(wrong)}")
    failed = [reason for p in getattr(made, "programs", ()) for reason in p.dropped] if target.variants else []
    if uncompiled := [reason for reason in failed if NOT_COMPILED in reason]:
        return dataclasses.replace(verdict, kind="variant", text=uncompiled[0])
    counted = target.economy and target.compiler == "anyshape" and not _UNCOUNTED & {s.op for s in case.steps}
    if counted and programs > len(seen):
        text = f"{programs} programs for {len(seen)} behaviours in {len(case.calls)} calls"
        return dataclasses.replace(verdict, kind="economy", text=text)
    return verdict


def _both(
    fn: Callable[..., Any], made: Any, arguments: tuple[Any, ...], backward: bool
) -> tuple[testing.Outcome, testing.Outcome, Any]:
    """What eager does, what the compiled function does, and a signature of eager's behavior."""
    with eager_behaviors.watching() as calls:
        want = testing.run_once(fn, testing.copies(arguments), backward=backward)
    got = testing.run_once(made, testing.copies(arguments), backward=backward)
    if broken := [e for e in (want.error, got.error) if isinstance(e, torch.AcceleratorError)]:
        raise broken[0]  # the device does nothing more in this process, whoever broke it
    return want, got, (*calls, type(want.error))


_NO_MEMORY = ("can't allocate memory", "out of memory")


def _excuse(
    case: Case, call: Call, target: Target, want: testing.Outcome, got: testing.Outcome, text: str
) -> str | None:
    """Why a difference is nobody's fault, if it is not: the machine is too small, or both are equally well rounded."""
    if any(words in str(error) for error in (want.error, got.error) for words in _NO_MEMORY):
        return "no memory"
    wide = rounding.widened(case) if "values" in text else None
    if wide is None:
        return None
    arguments = inputs.arguments(wide, call, target.device)
    exact = testing.run_once(function(wide, target.device), arguments, backward=case.backward)
    return "rounded otherwise" if exact.error is None and rounding.are_as_near(want, got, exact) else None


def _programs(made: Any) -> tuple[int, int]:
    """The most programs that any one captured part has, and how many calls ran eagerly."""
    programs = getattr(made, "programs", ())
    if isinstance(programs, int):  # stock's are only counted
        return programs, 0
    parts = collections.Counter((p.name, p.line) for p in programs)
    fallbacks = getattr(made, "fallbacks", {})
    return max(parts.values(), default=0), sum(fallbacks.values())


_KINDS = ("raised", "shape", "strides", "values", "share memory", "requires_grad", "structure", "resized", "torch.")


def _kind(text: str) -> str:
    """A word for a difference, so that findings can be counted and a shrunk case is still the same finding."""
    place = text.split(" ")[0].rstrip(":").split("[")[0]
    for word in _KINDS:
        if word in text:
            name = {"raised": "error", "share memory": "sharing", "torch.": "dtype"}.get(word, word)
            return f"{name} of {place}" if place in ("input", "gradient") else name
    return "result"
