"""A declaration: what a user says about the sizes and layouts of a callable.

Owns `Declaration`, which is made by `Declaration.parse` and is right from then on: whatever is malformed, unknown or
contradictory is refused there. Knows nothing of torch.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from anyshape.declaration.checker import Binding, Checker, Plan, compile_checker, explain, plan
from anyshape.declaration.expression import Clause, names
from anyshape.declaration.options import (
    ON_NEW_BEHAVIOR,
    SEMANTICS,
    read_clauses,
    read_hints,
    read_layout,
    read_shapes,
    read_specialize,
    read_word,
)
from anyshape.declaration.path import Path
from anyshape.declaration.place import in_value
from anyshape.declaration.shape import Shape
from anyshape.errors import InvariantError


class DeclarationWarning(UserWarning):
    """A declaration says something that adds nothing."""


@dataclasses.dataclass(frozen=True)
class Declaration:
    """What was declared for one callable. Make it with `parse`."""

    shapes: tuple[Shape, ...] = ()
    where: tuple[Clause, ...] = ()
    layout: str | None = None  # for every tensor that `layouts` does not name
    layouts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    hints: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    specialize: tuple[Clause, ...] | str = "hot"
    semantics: str = "eager"
    on_new_behavior: str = "compile"
    _checkers: dict[tuple[bool, ...], tuple[Plan, Checker]] = dataclasses.field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def parse(
        cls,
        shapes: Any = None,
        where: Any = None,
        layout: Any = None,
        hints: Any = None,
        specialize: Any = None,
        semantics: Any = "eager",
        on_new_behavior: Any = "compile",
        signature: inspect.Signature | None = None,
        examined: bool = False,
    ) -> Declaration:
        """The declaration in these words, or a `DeclarationError` that marks what is wrong.

        `signature` is that of the callable; with it, names of arguments are checked too. Words that were `examined`
        before are not looked through again for what contradicts itself.
        """
        read = read_shapes(shapes, signature)
        known = _names(read)
        _check_solvable(read)
        facts = tuple(f for s in read for f in s.facts)
        clauses = read_clauses("where", where, known)
        default_layout, layouts = read_layout(layout, signature)
        declaration = cls(
            shapes=read,
            where=clauses,
            layout=default_layout,
            layouts=layouts,
            hints=read_hints(hints, known, (*facts, *clauses)),
            specialize=read_specialize(specialize, known),
            semantics=read_word("semantics", semantics, SEMANTICS),
            on_new_behavior=read_word("on_new_behavior", on_new_behavior, ON_NEW_BEHAVIOR),
        )
        if not examined and (clauses or facts or isinstance(declaration.specialize, tuple)):
            declaration._examine()
        return declaration

    # -- what it says ------------------------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its sizes, in the order they are written."""
        return _names(self.shapes)

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(s.path for s in self.shapes)

    @property
    def facts(self) -> tuple[Clause, ...]:
        """What derived dims say about their names: `batch-1` is a size, so `batch-1 >= 0`."""
        return tuple(f for s in self.shapes for f in s.facts)

    @property
    def invariants(self) -> tuple[Clause, ...]:
        """All that may be assumed of the names, apart from that no size is negative."""
        return (*self.facts, *self.where)

    @property
    def oblivious_names(self) -> frozenset[str]:
        """The names that the compiler may not ask about: all, or those marked `batch!` somewhere."""
        if self.semantics == "oblivious":
            return frozenset(self.names)
        return frozenset(d.name for s in self.shapes for d in s.dims if d.oblivious and d.name is not None)

    def layout_of(self, path: str) -> str | None:
        return self.layouts.get(path, self.layout)

    def sites(self, name: str) -> tuple[str, ...]:
        """Where a name stands: `x.shape[1]`, `mask.shape[1]`."""
        return tuple(s.site(j) for s in self.shapes for j, d in enumerate(s.dims) if d.name == name)

    def json(self) -> dict[str, Any]:
        """The same in words: `Declaration.parse(**d.json())` is the same declaration."""
        return {
            "shapes": {s.path.text: s.text for s in self.shapes},
            "where": [c.text for c in self.where],
            "layout": self.layout if self.layout is not None else dict(self.layouts),
            "hints": {n: list(v) if len(v) > 1 else v[0] for n, v in self.hints.items()},
            "specialize": self.specialize if isinstance(self.specialize, str) else [c.text for c in self.specialize],
            "semantics": self.semantics,
            "on_new_behavior": self.on_new_behavior,
        }

    # -- a call ------------------------------------------------------------------------------------------------

    def bind(self, tensors: Mapping[str, Sequence[int]]) -> Binding:
        """The value of each name for these shapes by path; a path that is absent is an argument that was not given.

        Raises `InvariantError` for the first thing that is not as declared.
        """
        found = [tensors.get(k) for k in self._keys]
        present = tuple([s is not None for s in found])
        compiled = self._checkers.get(present)
        steps, check = compiled if compiled is not None else self._compile(present)
        try:
            sizes = check(*found)
        except ZeroDivisionError:
            sizes = None
        if sizes is None:
            explain(self.shapes, steps, found)
        return Binding(sizes)

    def tensors(
        self,
        arguments: Mapping[str, Any],
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        owner: Any = None,
    ) -> dict[str, Sequence[int]]:
        """The shapes of the declared tensors in a call, for `bind`. See `Path.fetch` for the arguments."""
        found: dict[str, Sequence[int]] = {}
        for path in self.paths:
            value = path.fetch(arguments, args=args, kwargs=kwargs, owner=owner)
            if value is None:
                continue
            shape = getattr(value, "shape", None)
            if shape is None:
                what = f"{path} is {type(value).__name__}, and a tensor is declared"
                raise InvariantError(what, where=f'shapes["{path}"]', fix=f'take "{path}" out of shapes', code="AS021")
            found[path.text] = shape
        return found

    @functools.cached_property
    def _keys(self) -> tuple[str, ...]:
        return tuple(s.path.text for s in self.shapes)

    def _compile(self, present: tuple[bool, ...]) -> tuple[Plan, Checker]:
        steps = plan(self.shapes, self.where, present)
        compiled = steps, compile_checker(self.shapes, steps, present)
        self._checkers[present] = compiled
        return compiled

    def _examine(self) -> None:
        # The solver reads declarations, so it is imported when one is there.
        from anyshape.declaration import solver

        solver.conflicts(self)
        for clause in solver.vacuous(self):
            said = "holds for every size" if solver.implied((), clause) else "follows from the other invariants"
            warnings.warn(
                f'{clause.origin}: "{clause.text}" {said}: it adds nothing', DeclarationWarning, _stacklevel()
            )

    def __reduce__(self) -> Any:
        # Not the fields: generated code does not pickle.
        return _parse_words, (self.json(),)

    def __hash__(self) -> int:
        return hash((self.shapes, self.where, self.layout, self.specialize, self.semantics, self.on_new_behavior))


def _parse_words(words: dict[str, Any]) -> Declaration:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeclarationWarning)
        return Declaration.parse(**words)


def _names(shapes: Sequence[Shape]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(n for s in shapes for d in s.dims if d.expr is not None for n in names(d.expr)))


def _check_solvable(shapes: Sequence[Shape]) -> None:
    """Every name must have a dim that tells its value."""
    for name, i, j in plan(shapes, (), [True] * len(shapes)).unsolved:
        shape = shapes[i]
        place = in_value("shapes", shape.path.text, shape.text)
        what = f"no dim tells the value of {name}: it stands only in {shape.dims[j].text}"
        fix = f"let {name} stand alone, or as {name}+1 or 2*{name}, in a dim of another tensor"
        place.refuse(what, *shape.span(j), fix=fix)


def _stacklevel() -> int:
    """The level of the first caller outside this package, for warnings."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("anyshape."):
        level, frame = level + 1, frame.f_back
    return level
