"""Graph breaks: their text, and resuming after one in the middle of arithmetic.

Owns two things: what is said of one, in a line, and where Dynamo can go on after one. It goes on after calls and
subscripts; after a break at `a + b` (symbolic_convert.py has no break there, torch 2.11 to 2.15) it leaves the rest of
the function to eager, so arithmetic is made one of the places.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterator
from typing import Any

import torch._dynamo.symbolic_convert as symbolic_convert

from anyshape._torch.repairs.registry import Place, repair

_ARITHMETIC = [
    code
    for name, code in dis.opmap.items()
    if name.startswith(("BINARY_", "INPLACE_")) and not name.endswith(("SUBSCR", "SLICE")) and code < 256
]


def _subclasses(kind: Any) -> Iterator[Any]:
    for sub in kind.__subclasses__():
        yield sub
        yield from _subclasses(sub)


def _handlers() -> list[Place]:
    """Arithmetic in the tables of all translators; some share one."""
    found: dict[tuple[int, int], Place] = {}
    base = symbolic_convert.InstructionTranslatorBase
    for kind in (base, *_subclasses(base)):
        for code in _ARITHMETIC:
            text = f"torch._dynamo.symbolic_convert:{kind.__name__}.dispatch_table[{dis.opname[code]}]"
            where = (kind.dispatch_table, code)
            if where[0][code] is not None:
                found.setdefault((id(where[0]), code), Place(text, functools.partial(tuple, where)))
    return list(found.values())


@repair(
    _handlers,
    scope="capture",
    phase="capture",
    broken="2.11-2.15",
    symptom="After a graph break at `a + b` the rest of the function runs eagerly.",
    cause="symbolic_convert.py goes on after calls and subscripts alone.",
    cure="Arithmetic may break the graph, and what follows is captured.",
    goes="when symbolic_convert.py has a break for arithmetic",
)
def arithmetic(stock: Any) -> Any:
    return symbolic_convert.break_graph_if_unsupported(push=True, msg_prefix="arithmetic")(stock)


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
