"""Compiled frames compared: bytecode beside the graph, guards, and joining the guards of two.

Owns what a frame that Dynamo compiled does besides calling its graph, what guards it, and how one frame takes on the
guards of another that turned out to do the same.
"""

from __future__ import annotations

import collections
import dis
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list

_GRAPH = "__compiled_fn_"
_NO_PART = ("CACHE", "PRECALL", "RESUME", "NOP")  # of what a frame does
# What names are made unique by: those of objects say which object, and in which compilation they were put there.
_COMPILATION = re.compile(r"(_\d{9,})_c\d+\b|(?<=__builtins_dict__)_\d+")
_OWN = re.compile(r"G\['(__import_\w+|___\w+|_\d{9,}\w*)'\]")
# Guards whose text is the expression that they check.
_EXPRESSIONS = ("ID_MATCH", "TYPE_MATCH", "EQUALS_MATCH", "NONE_MATCH", "TRUE_MATCH", "FALSE_MATCH")


def besides_the_graph(code: types.CodeType) -> tuple[Any, ...] | None:
    """What a compiled frame does before and after it calls its graph; None if that cannot be told.

    The loading of the graph's arguments is left out, since one graph may need fewer sizes than another: it does nothing
    else, and puts nothing where it is read later.
    """
    instructions = [i for i in dis.get_instructions(code) if i.opname not in _NO_PART]
    begins = [n for n, i in enumerate(instructions) if str(i.argval).startswith(_GRAPH)]
    if len(begins) != 1:
        return None
    begin = begins[0] - (begins[0] > 0 and instructions[begins[0] - 1].opname == "PUSH_NULL")
    end = _after_the_call(instructions, begin)
    if end is None:
        return None
    inside = {i.argval for i in instructions[begin:end] if i.opname.startswith("STORE_")}
    after = [i for i in instructions[end:] if i.argval not in inside or not i.opname.startswith("DELETE_")]
    rest = [*instructions[:begin], *after]
    if any(i.argval in inside for i in rest):
        return None
    return _told(rest, instructions[begin].offset, instructions[end].offset if end < len(instructions) else None)


def _told(rest: Sequence[dis.Instruction], begin: int, end: int | None) -> tuple[Any, ...] | None:
    locals_: dict[Any, str] = {}
    found: list[Any] = []
    for i in rest:
        value: Any = _COMPILATION.sub(r"\1", str(i.argval))
        if i.opcode in dis.hasjrel or i.opcode in dis.hasjabs:
            if end is None or begin <= i.argval < end:
                return None
            value = next(n for n, other in enumerate(rest) if other.offset >= i.argval)
        elif value.startswith("tmp_"):
            value = locals_.setdefault(value, f"tmp {len(locals_)}")
        elif i.opname == "LOAD_CONST":
            value = type(i.argval).__name__, i.argval if isinstance(i.argval, types.CodeType) else repr(i.argval)
        found.append((i.opname, value))
    return tuple(found)


def _after_the_call(instructions: Sequence[dis.Instruction], begin: int) -> int | None:
    depth = 0
    for n in range(begin, len(instructions)):
        depth += _effect(instructions[n])
        if n > begin and depth == 1 and instructions[n].opname.startswith("CALL"):
            return n + 1
    return None


def _effect(instruction: dis.Instruction) -> int:
    """Of an instruction on the stack; that of a call is told for it and its `PRECALL` together (Python 3.11)."""
    if instruction.opname == "CALL" and "PRECALL" in dis.opmap:
        return -int(instruction.arg or 0) - 1
    return dis.stack_effect(instruction.opcode, instruction.arg)


def guards(text: str) -> frozenset[str]:
    """The guards of a frame, without how they are reached and where they come from."""
    lines = (re.sub(r"^[|+\- ]*", "", line).partition("  # ")[0].strip() for line in text.splitlines())
    plain = (_COMPILATION.sub(r"\1", line) for line in lines if "Manager: source=" not in line)
    return frozenset(line for line in plain if line and "__anyshape_admits" not in line)


def take_on(origin: types.CodeType, code: types.CodeType, missing: Iterable[str], newer: Any, frame: Any) -> bool:
    """The frame compiled to `code` checks `missing` guards of `newer`, a guard manager, from here on too.

    False where one of them cannot be told as an expression, or does not hold.
    """
    return _add(_manager(origin, code), missing, newer, frame)


def take_on_of(origin: types.CodeType, code: types.CodeType, missing: Iterable[str], newer: Any, frame: Any) -> bool:
    """The other way: a frame with the guards of `newer`, that nobody has called yet, checks those of `code` too."""
    return _add(newer, missing, _manager(origin, code), frame)


def _manager(origin: types.CodeType, code: types.CodeType) -> Any:
    managers = [e.guard_manager for e in _debug_get_cache_entry_list(origin) if e.code is code]
    return managers[0] if len(managers) == 1 else None


def _add(manager: Any, missing: Iterable[str], newer: Any, frame: Any) -> bool:
    root = getattr(manager, "root", None)
    texts = [_expression(line) for line in missing]
    if not texts:
        return True
    if root is None or newer is None or None in texts:
        return False
    if newer.closure_vars is None or "G" not in (newer.global_scope or ()):
        return False
    text = " and ".join(f"({t})" for t in texts)
    # What Dynamo put among the globals goes with the newer frame, and is the same for ever.
    names = newer.global_scope["G"]
    own = {name: names[name] for name in _OWN.findall(text) if name in names}
    check = _function(text, {**newer.closure_vars, "G": collections.ChainMap(own, names)})
    if not check(frame.f_locals):
        return False
    root.add_lambda_guard(check, [text], None)
    return True


def _expression(line: str) -> str | None:
    kind, _, text = line.partition(": ")
    return re.sub(r", type=<.*>$", "", text) if kind in _EXPRESSIONS else None


def _function(text: str, scope: Mapping[str, Any]) -> Callable[[Any], bool]:
    expression = eval(f"lambda L: {text}", dict(scope))

    def check(names: Any) -> bool:
        try:
            return bool(expression(names))
        except Exception:  # what it looks at is not there
            return False

    return check
