"""`anyshape.export`.

Owns the function that people call: one program, or all of them. How a program is made is `exporter`'s.
"""

from __future__ import annotations

from typing import Any

from anyshape.declaration.options import read_word
from anyshape.exported_behaviors import export_all
from anyshape.exporter import Exporter


def export(
    model: Any,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    shapes: Any = None,
    where: Any = None,
    semantics: Any = "eager",
    behaviors: Any = "one",
) -> Any:
    """Export a module or function once for every size: a `torch.export.ExportedProgram`.

    Every dim that is not declared static is an unbacked symbol from 0 on, and all that the program needs of sizes is
    asserted in its graph, so a call that it is not right for raises. `shapes`, `where` and `semantics` are those of
    `anyshape.compile`. Where your code acts on a size in more than one way the export is refused, showing the branch;
    `behaviors="all"` exports every way and gives a package that picks the right one at each call.
    """
    word = read_word("behaviors", behaviors, ("one", "all"))
    exporter = Exporter(model, shapes=shapes, where=where, semantics=semantics)
    if word == "all":
        return export_all(exporter, args, kwargs or {})
    traced = exporter.trace(args, kwargs or {})
    exporter.refuse_branches(traced)
    return exporter.finish(exporter.settle(traced))
