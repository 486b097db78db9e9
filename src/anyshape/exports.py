"""`anyshape.export`.

Owns the function that people call: one program, or all of them. How a program is made is `exported_program`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, overload

import torch

from anyshape._torch.runtime import compiled_modules
from anyshape.declaration.options import read_word
from anyshape.exported_behaviors import ExportedBehaviors, export_all
from anyshape.exported_program import Exporter
from anyshape.foundation.option_types import Clauses, Semantics, Shapes


@overload
def export(
    model: Callable[..., object],
    args: tuple[object, ...] = (),
    kwargs: Mapping[str, object] | None = None,
    *,
    shapes: Shapes | None = None,
    where: Clauses | None = None,
    semantics: Semantics = "eager",
    behaviors: Literal["one"] = "one",
) -> torch.export.ExportedProgram: ...
@overload
def export(
    model: Callable[..., object],
    args: tuple[object, ...] = (),
    kwargs: Mapping[str, object] | None = None,
    *,
    shapes: Shapes | None = None,
    where: Clauses | None = None,
    semantics: Semantics = "eager",
    behaviors: Literal["all"],
) -> ExportedBehaviors: ...
def export(
    model: Callable[..., object],
    args: tuple[object, ...] = (),
    kwargs: Mapping[str, object] | None = None,
    *,
    shapes: Shapes | None = None,
    where: Clauses | None = None,
    semantics: Semantics = "eager",
    behaviors: Literal["one", "all"] = "one",
) -> torch.export.ExportedProgram | ExportedBehaviors:
    """Export a module or function once for every size: a `torch.export.ExportedProgram`.

    Every dim that is not declared static is an unbacked symbol that may be 0. All conditions on sizes that the program
    needs are assertions in its graph. `shapes`, `where` and `semantics` mean the same as in `anyshape.compile`. If your
    code has several behaviors, an error shows the branch. `behaviors="all"` exports a program for each behavior, and
    returns a package that chooses the program in each call.
    """
    compiled_modules.check_no_class(model, asked_by="export")
    word = read_word("behaviors", behaviors, ("one", "all"))
    exporter = Exporter(model, shapes=shapes, where=where, semantics=semantics)
    if word == "all":
        return export_all(exporter, args, dict(kwargs or {}))
    traced = exporter.trace(args, dict(kwargs or {}))
    exporter.refuse_branches(traced)
    return exporter.finish(exporter.settle(traced))  # type: ignore[no-any-return,unused-ignore]
