"""Graph breaks.

Owns two things: what is said of one, in a line, and where Dynamo can go on after one. It goes on after calls and
subscripts; after a break at `a + b` (symbolic_convert.py has no break there, torch 2.11 to 2.15) it leaves the rest of
the function to eager, so arithmetic is made one of the places.
"""

from __future__ import annotations

import contextlib
import dis
from collections.abc import Iterator
from typing import Any

import torch._dynamo.symbolic_convert as symbolic_convert

_ARITHMETIC = [
    code
    for name, code in dis.opmap.items()
    if name.startswith(("BINARY_", "INPLACE_")) and not name.endswith(("SUBSCR", "SLICE")) and code < 256
]


@contextlib.contextmanager
def patches() -> Iterator[None]:
    """Arithmetic may break the graph, and what follows is captured."""
    breaks = symbolic_convert.break_graph_if_unsupported(push=True, msg_prefix="arithmetic")
    kinds = [symbolic_convert.InstructionTranslatorBase, *_subclasses(symbolic_convert.InstructionTranslatorBase)]
    before = [(kind.dispatch_table, code, kind.dispatch_table[code]) for kind in kinds for code in _ARITHMETIC]
    try:
        for table, code, handler in before:
            if handler is not None:
                table[code] = breaks(handler)
        yield
    finally:
        for table, code, handler in before:
            table[code] = handler


def _subclasses(kind: Any) -> Iterator[Any]:
    for sub in kind.__subclasses__():
        yield sub
        yield from _subclasses(sub)


def text(why: Any) -> str:
    """A graph break in a line."""
    said = str(why.reason).splitlines()[0]
    if not why.user_stack:
        return said
    place = f"{why.user_stack[-1].filename}:{why.user_stack[-1].lineno}"
    if said.startswith("generic_jump"):
        return f"a branch on a value that the graph computes, at {place}"
    if said.startswith("step_unsupported"):
        return f"{REST}, from {place}"
    return said


REST = "the rest of the function runs eagerly"
