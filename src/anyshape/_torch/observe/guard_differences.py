"""The first failed guard of each program that is not about sizes, in the words of the user.

Owns the first guard of each program that a call fails, in the words of the user: what the program was made for, and
what the call has instead. Guards of anyshape are about sizes, and are no difference here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import types
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import torch._dynamo.config as dynamo_config
import torch._dynamo.eval_frame as eval_frame
import torch._dynamo.exc as dynamo_exc
from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list

from anyshape._torch.observe.failed_guards import Scope
from anyshape.doctor import guard_text
from anyshape.doctor.events import Reason

_OURS = "__anyshape_"  # what guards of anyshape call: they stand in one guard, whose parts are all said to have failed
_OF_SIZES = ("size", "stride", "shape")
_PLAIN = (int, float, str, bool, type(None))


@dataclasses.dataclass(frozen=True)
class Difference:
    """A guard that a call fails."""

    source: str  # what it is about: L['self'].steps
    kind: str  # value | length | dtype | rank | identity | ..., and the dim of a size
    theirs: str  # what the program is for: self.steps == 3
    ours: str  # what the call has: self.steps == 4
    of_a_float: bool
    of_a_size: bool

    @property
    def about(self) -> tuple[str, str]:
        return self.source, self.kind


def found(
    code: types.CodeType, names: Mapping[str, Any], programs: Mapping[int, Any]
) -> Iterator[tuple[Any, Difference]]:
    """For each program of a frame's code that refuses these names for another reason than sizes: the reason.

    `programs` are by the id of their compiled code, whose constants may have no hash.
    """
    for entry in _debug_get_cache_entry_list(code) if programs else ():
        program = programs.get(id(entry.code))
        if program is None:
            continue
        failed = entry.guard_manager.check_verbose(names)
        parts = [] if failed.result else list(failed.verbose_code_parts)
        if parts and not any(_OURS in part for part in parts):
            yield program, _difference(guard_text.reason("", parts[0]), Scope(entry.guard_manager, names))


def _difference(reason: Reason, scope: Scope) -> Difference:
    about = guard_text.argument(reason.source)
    actual = reason.actual
    if actual is None and reason.kind in ("value", "length"):
        with contextlib.suppress(Exception):
            value = scope.value(reason.source)
            actual = len(value) if reason.kind == "length" else value
    guard = guard_text.readable(reason.guard)
    if reason.kind == "value" and type(reason.expected) in _PLAIN and type(actual) in _PLAIN:
        theirs, ours = f"{about} == {_short(reason.expected)}", f"{about} == {_short(actual)}"
    elif reason.kind == "length" and isinstance(reason.expected, int) and isinstance(actual, int):
        theirs, ours = f"len({about}) == {reason.expected}", f"len({about}) == {actual}"
    elif reason.source and reason.expected is not None and actual is not None:
        what = f"{about} ({reason.kind.replace('_', ' ')})"
        theirs, ours = f"{what} is {_short(reason.expected)}", f"{what} is {_short(actual)}"
    else:
        theirs, ours = guard, f"not ({guard})"
    kind = reason.kind if reason.dim is None else f"{reason.kind} {reason.dim}"
    is_float = reason.kind == "value" and type(reason.expected) is float and type(actual) is float
    return Difference(reason.source, kind, theirs, ours, is_float, reason.kind in _OF_SIZES)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) and not value.isidentifier() else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def limit(kind: str) -> int:
    """How many programs one difference may make: torch's own limits, as they are set now."""
    if kind == "identity":  # ten objects of which each is compiled once are nothing that goes on and on
        return int(dynamo_config.accumulated_recompile_limit)
    return int(dynamo_config.recompile_limit)


def fails_at_the_limit() -> bool:
    """Whether torch was told that reaching a limit is an error."""
    return bool(dynamo_config.fail_on_recompile_limit_hit)


def limit_error(text: str) -> Exception:
    """torch's own error for a limit that was reached where nothing may run eagerly."""
    return dynamo_exc.FailOnRecompileLimitHit(text)


class _Nothing:
    """What no frame holds."""


_NOTHING = _Nothing()


def count_for_no_other(guards: Any) -> None:
    """Programs of anyshape do not use up the recompile limit of a stock `torch.compile` of the same code.

    torch counts the entries whose identity-checked locals are those of a frame (cache_size.py,
    `_has_same_id_matched_objs`, 2.11 to 2.15); of these entries none ever is.
    """
    known = getattr(guards, "id_matched_objs", None)
    apart = hasattr(eval_frame, "_next_isolate_recompiles_id")  # torch 2.13 on: they are kept in a list of their own
    if isinstance(known, dict) and not apart:
        known["<anyshape>"] = weakref.ref(_NOTHING)
