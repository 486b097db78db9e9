"""`cover=True`: calls of sizes that the solver finds uncovered.

Owns `cover=True`: the solver names sizes that are allowed and that no program serves, tensors of those sizes are made,
and the call is captured with them, until every allowed size is covered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from anyshape._torch.runtime import trees
from anyshape.ahead.making import Workshop, refused
from anyshape.coverage import check_engine
from anyshape.declaration.expression import evaluate, names
from anyshape.errors import ArtifactError

MOST = 64  # calls that are tried
_DIM = re.compile(r"(.+)\.shape\[(\d+)\]")
Call = tuple[Sequence[Any], Mapping[str, Any]]


def cover_all(workshop: Workshop, calls: Sequence[Call]) -> list[Call]:
    """Make programs until they cover what is declared; the calls that it took."""
    made: list[Call] = []
    seen: set[Any] = set()
    for _ in range(MOST):
        coverage = check_engine(workshop.engine)
        if coverage.covered:
            return made
        wanted = coverage.uncovered
        if not wanted or tuple(sorted(wanted.items())) in seen:
            raise refused(f"not every size can be covered: {coverage}")
        seen.add(tuple(sorted(wanted.items())))
        call = resized(workshop, calls[0], wanted)
        workshop.make(*call)
        made.append(call)
    raise refused(f"{MOST} calls do not cover every size: {check_engine(workshop.engine)}")


def resized(workshop: Workshop, call: Call, sizes: Mapping[str, int]) -> Call:
    """A call like `call` whose tensors have these sizes, by name or by dim (`x.shape[0]`)."""
    bound = workshop.bind(*call)
    entry_check = workshop.engine.entry_check
    values: dict[str, int] = dict(sizes)
    wanted: dict[int, dict[int, int]] = {}  # tensor -> dim -> size

    def want(tensor: Any, dim: int, size: int) -> None:
        if isinstance(tensor, torch.Tensor) and dim < tensor.dim():
            wanted.setdefault(id(tensor), {})[dim] = size

    for name, size in sizes.items():
        match = _DIM.fullmatch(name)
        if match is not None and match[1] in bound:
            want(bound[match[1]], int(match[2]), size)
    if entry_check is not None:
        shapes = entry_check.declaration.tensors(bound, args=call[0], kwargs=call[1], owner=workshop.owner)
        values = {**entry_check.declaration.bind(shapes).sizes, **values}
        for shape in entry_check.declaration.shapes:
            tensor = shape.path.fetch(bound, args=call[0], kwargs=call[1], owner=workshop.owner)
            if isinstance(tensor, torch.Tensor):
                for dim, declared in enumerate(shape.at_rank(tensor.dim())):
                    if declared.expr is not None and set(names(declared.expr)) <= values.keys():
                        want(tensor, dim, int(evaluate(declared.expr, values)))

    def leaf(value: Any) -> Any:
        if id(value) not in wanted or not isinstance(value, torch.Tensor):
            return value
        shape = [wanted[id(value)].get(i, n) for i, n in enumerate(value.shape)]
        return value.detach().new_zeros(shape).requires_grad_(value.requires_grad)

    try:
        args, kwargs = trees.map_leaves(leaf, (tuple(call[0]), dict(call[1])))
    except RuntimeError as error:
        what = "no tensors of the sizes that cover=True needs can be made"
        fix = 'where=["1 <= batch <= 64"], which rules such sizes out'
        raise ArtifactError(what, where="cover=True", value=dict(sizes), fix=fix, code="AS056") from error
    return args, kwargs
