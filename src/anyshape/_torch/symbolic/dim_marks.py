"""torch's marks on dims (`_dynamo_*`) and dynamic and unbacked source lists, and anyshape's own.

Owns `mark_dynamic`, `mark_unbacked` and `mark_static`, the reading of torch's own marks (`_dynamo_*` on tensors) and of
`TORCH_COMPILE_DYNAMIC_SOURCES` and `TORCH_COMPILE_UNBACKED_SOURCES` with their `:N` form, which torch has from 2.13 on.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.compiler.config as compiler_config

from anyshape.assumptions.wording import describe_source
from anyshape.declaration import Clause, Comparison, Dim
from anyshape.declaration.expression import Name, Number
from anyshape.declaration.place import brief
from anyshape.declaration.place import kind as kind_of
from anyshape.declaration.policy import TensorPolicy
from anyshape.errors import DeclarationError

_ATTRIBUTE = "_anyshape_marks"
_KINDS = ("dynamic", "unbacked", "static")


@dataclasses.dataclass(frozen=True)
class Mark:
    """What is said of one dim of one tensor."""

    kind: str  # dynamic | unbacked | static
    min: int | None = None
    max: int | None = None
    hint: int | None = None
    name: str | None = None


def mark(tensor: Any, dims: int | Sequence[int], made: Mark) -> None:
    """Put a mark on dims of a tensor; a later one replaces an earlier one on the same dim."""
    call = f"anyshape.mark_{made.kind}"
    if not isinstance(tensor, torch.Tensor):
        what = f"{call} marks a tensor, and this is {type(tensor).__name__}"
        raise DeclarationError(what, where=call, value=brief(tensor), fix=f"{call}(x, 0)", code="AS007")
    wanted = list(dims) if isinstance(dims, Iterable) and not isinstance(dims, str) else [dims]
    rank = tensor.dim()
    if not all(type(dim) is int for dim in wanted):
        what = f"a dim is a number, and this is {kind_of(next(d for d in wanted if type(d) is not int))}"
        raise DeclarationError(what, where=call, value=brief(dims), fix=f"{call}(x, 0)", code="AS007")
    for dim in wanted:
        if not -rank <= dim < rank:
            what = f"there is no dim {dim!r}: the tensor has {rank}"
            raise DeclarationError(what, where=call, value=tuple(tensor.shape), fix=f"{call}(x, 0)", code="AS011")
    for name, value in (("min", made.min), ("max", made.max), ("hint", made.hint)):
        if value is not None and (type(value) is not int or value < 0):
            what = f"{name} is a size, and this is {value!r}"
            raise DeclarationError(what, where=call, value=value, fix=f"{call}(x, 0, {name}=64)", code="AS007")
    if made.min is not None and made.max is not None and made.min > made.max:
        what = f"no size is at least {made.min} and at most {made.max}"
        fix = f"{call}(x, 0, min={made.max}, max={made.min})"
        raise DeclarationError(what, where=call, value=f"min={made.min}, max={made.max}", fix=fix, code="AS012")
    if made.hint is not None and not (made.min or 0) <= made.hint <= (made.hint if made.max is None else made.max):
        what = f"the hint {made.hint} is not within the range"
        given = f"hint={made.hint}, min={made.min}, max={made.max}"
        fix = f"{call}(x, 0, hint={made.min or made.max})"
        raise DeclarationError(what, where=call, value=given, fix=fix, code="AS012")
    if made.name is not None and (not isinstance(made.name, str) or not made.name.isidentifier()):
        what = f"a name is a word, and this is {made.name!r}"
        raise DeclarationError(what, where=call, value=made.name, fix=f'{call}(x, 0, name="batch")', code="AS010")
    marks: dict[int, Mark] = getattr(tensor, _ATTRIBUTE, {})
    setattr(tensor, _ATTRIBUTE, {**marks, **{d % rank: made for d in wanted}})


def policy(
    tensor: Any,
    source: str,
    known: TensorPolicy | None,
    *,
    fixed: Sequence[bool],
    unbacked: Sequence[bool],
    layout: str | None,
    oblivious: bool,
) -> TensorPolicy | None:
    """All that is declared of an input, by path, by marks and by sources; None where nothing is.

    `fixed` and `unbacked` say what Dynamo made of torch's own marks, `layout` and `oblivious` what holds for all.
    """
    rank = len(fixed)
    marks = dict(_marks(tensor, source, rank))
    if known is None and not marks and layout is None and not oblivious and not any(unbacked):
        return None
    # What a module owns keeps its layout, unless it was named.
    own = None if known is None and rank and all(fixed) else layout
    own = known.layout if known is not None and known.layout is not None else own
    dims = list(known.dims) if known is not None else [Dim("_", None)] * rank
    clauses: list[Clause] = []
    hints: dict[str, int] = {}
    for i, dim in enumerate(dims):
        made = marks.get(i)
        if made is not None:
            if made.kind == "static":
                dims[i] = dim = Dim(str(tensor.shape[i]), Number(tensor.shape[i]))
            else:
                name = made.name or dim.name or f"{describe_source(source)}.shape[{i}]"
                dim = dim if dim.expr is not None and made.name is None else Dim(name, Name(name))
                dims[i] = dim
                if dim.name is not None:
                    clauses += _range(dim.name, made)
                    hints |= {dim.name: made.hint} if made.hint is not None else {}
        asked = oblivious or unbacked[i] or (made is not None and made.kind == "unbacked")
        if asked and dim.value is None:
            dims[i] = dataclasses.replace(dim, oblivious=True)
    path = known.path if known is not None else describe_source(source)
    return TensorPolicy(path, tuple(dims), own, tuple(clauses), hints)


def _range(name: str, made: Mark) -> Iterator[Clause]:
    for op, bound in ((">=", made.min), ("<=", made.max)):
        if bound is not None:
            yield Clause(f"{name} {op} {bound}", (Comparison(Name(name), op, Number(bound)),), "mark")


def _marks(tensor: Any, source: str, rank: int) -> Iterator[tuple[int, Mark]]:
    """Torch's marks, then the sources of the environment, then those of anyshape, which are more exact."""
    hints = getattr(tensor, "_dynamo_hint_overrides", None) or {}
    names = getattr(tensor, "_dynamo_shape_ids", None) or {}
    bounds = {r.dim: (r.min, r.max) for r in getattr(tensor, "_dynamo_dynamic_range", ())}
    bounds |= getattr(tensor, "_dynamo_unbacked_bounds", None) or {}
    for attribute, kind in (
        ("_dynamo_dynamic_indices", "dynamic"),
        ("_dynamo_unbacked_indices", "unbacked"),
        ("_dynamo_strict_unbacked_indices", "unbacked"),
    ):
        for i in getattr(tensor, attribute, ()):
            low, high = bounds.get(i, (None, None))
            yield i, Mark(kind, low, high, hints.get(i), names.get(i))
    for i in range(rank):
        if _listed(compiler_config.unbacked_sources, source, i):
            yield i, Mark("unbacked")
        elif _listed(compiler_config.dynamic_sources, source, i):
            yield i, Mark("dynamic")
    yield from getattr(tensor, _ATTRIBUTE, {}).items()


def _listed(sources: str, source: str, dim: int) -> bool:
    """Whether a list names a dim of a source: `L['x']` all of them, `L['x']:1` one; an entry may be a pattern."""
    for entry in sources.replace(" ", "").split(",") if sources else ():
        pattern, _, index = entry.rpartition(":")
        if not index.isdigit() or not pattern:
            pattern, index = entry, ""
        if pattern and (pattern == source or _matches(pattern, source)) and index in ("", str(dim)):
            return True
    return False


def _matches(pattern: str, source: str) -> bool:
    try:
        return re.match(pattern, source) is not None
    except re.error:
        return False
