"""The shape of one tensor in words: `"batch seq 512"`, `"... 2*seq _"`.

Owns dims and their parsing. A name is one size wherever it stands, a number is static, `_` is any size, `...` any
number of dims, `()` none; `batch!` is a size that the compiler may not ask about.
"""

from __future__ import annotations

import dataclasses
import difflib
import re

from anyshape.declaration.expression import Clause, Comparison, Expression, Name, Number, constant_value
from anyshape.declaration.path import Path
from anyshape.declaration.place import Place
from anyshape.declaration.reading import check_name, read_size

MOST_DIMS = 64


@dataclasses.dataclass(frozen=True)
class Dim:
    """One dim. `expr` is None for `_`; a Number is a static size, a Name a free one, anything else a derived one."""

    text: str
    expr: Expression | None
    oblivious: bool = False

    @property
    def kind(self) -> str:
        """any | static | name | derived"""
        if self.expr is None:
            return "any"
        return {Number: "static", Name: "name"}.get(type(self.expr), "derived")

    @property
    def name(self) -> str | None:
        return self.expr.name if isinstance(self.expr, Name) else None

    @property
    def value(self) -> int | None:
        return self.expr.value if isinstance(self.expr, Number) else None


ANY = Dim("_", None)


@dataclasses.dataclass(frozen=True)
class Shape:
    """The dims of one tensor; `ellipsis` is the position in `dims` where any number of further dims stands, or None."""

    path: Path
    text: str
    dims: tuple[Dim, ...]
    ellipsis: int | None = None

    def accepts_rank(self, rank: int) -> bool:
        return rank >= len(self.dims) if self.ellipsis is not None else rank == len(self.dims)

    def at_rank(self, rank: int) -> tuple[Dim, ...]:
        """A dim for each dim of a tensor of this rank."""
        if not self.accepts_rank(rank):
            raise ValueError(f"{self.path} is declared {self.text!r}, which has no {rank} dims")
        if self.ellipsis is None:
            return self.dims
        return self.dims[: self.ellipsis] + (ANY,) * (rank - len(self.dims)) + self.dims[self.ellipsis :]

    def index(self, position: int) -> int:
        """The index of a dim in a shape: negative when it stands after `...`."""
        return position if self.ellipsis is None or position < self.ellipsis else position - len(self.dims)

    def site(self, position: int, rank: int | None = None) -> str:
        """How a user would write that dim: `x.shape[1]`."""
        index = self.index(position)
        return f"{self.path}.shape[{index + rank if index < 0 and rank is not None else index}]"

    def span(self, position: int) -> tuple[int, int]:
        """Where a dim stands in the text."""
        tokens = self.text.split()
        index = position + (self.ellipsis is not None and position >= self.ellipsis)
        token = self.dims[position].text
        if len(tokens) == len(self.dims) + (self.ellipsis is not None):
            start = sum(len(t) + 1 for t in tokens[:index])
        else:
            start = max(0, self.text.find(token))  # there are spaces in parentheses
        return start, start + len(token)

    @property
    def facts(self) -> tuple[Clause, ...]:
        """What its derived dims say about their names: no size is negative."""
        return tuple(
            Clause(f"{d.text} >= 0", (Comparison(d.expr, ">=", Number(0)),), f'shapes["{self.path}"]')
            for d in self.dims
            if d.kind == "derived" and d.expr is not None
        )


def read_shape(place: Place, path: Path) -> Shape:
    """The shape in the whole text of the place."""
    text = place.text
    if not text.strip():
        place.refuse("an empty shape, which says nothing", whole="...")
    if text.strip() == "()":
        return Shape(path, "()", ())
    tokens = _split(text)
    if len(tokens) > MOST_DIMS:
        place.refuse(f"{len(tokens)} dims; torch has at most {MOST_DIMS}", tokens[MOST_DIMS][0], whole="...")
    dims: list[Dim] = []
    ellipsis: int | None = None
    for start, end in tokens:
        if text[start:end] == "...":
            if ellipsis is not None:
                place.refuse('a second "...": where one ends could not be told', start, end, instead="")
            ellipsis = len(dims)
        else:
            dims.append(_read_dim(place, start, end))
    return Shape(path, " ".join(text.split()), tuple(dims), ellipsis)


def _split(text: str) -> list[tuple[int, int]]:
    """Where the dims stand: what is separated by space outside parentheses."""
    tokens: list[tuple[int, int]] = []
    depth, start = 0, None
    for i, character in enumerate(text + " "):
        if character.isspace() and (depth <= 0 or i == len(text)):
            if start is not None:
                tokens.append((start, i))
            start = None
            continue
        start = i if start is None else start
        depth += (character == "(") - (character == ")")
    return tokens


def _read_dim(place: Place, start: int, end: int) -> Dim:
    token = place.text[start:end]
    if token == "_":
        return ANY
    if comma := re.search("[,;]", token):
        at = (start + comma.start(), start + comma.end())
        place.refuse("dims are separated by spaces", *at, whole=re.sub(r"[,;\[\]]", " ", place.text))
    if token.startswith("!"):
        whole = (
            re.sub(r"\s*!\s*(?=\s|$)", "! ", place.text)
            if token == "!"
            else f"{place.text[:start]}{token[1:]}!{place.text[end:]}"
        )
        place.refuse("the mark stands right after a name", start, start + 1, whole=whole if whole.strip(" !") else "_!")
    if token.endswith("!"):
        return _read_marked(place, start, end)
    if re.fullmatch(r"-\d+", token):
        place.refuse("no size is negative", start, end, instead="_" if token == "-1" else token[1:])
    if match := re.fullmatch(r"([^\W\d]\w*)=(\d+)", token):
        place.refuse("a dim is a name or a number, not both", start, end, instead=match[2])
    if match := re.fullmatch(r"[*#?]+([^\W\d]\w*)", token):
        whole = place.text[:start] + ("..." if token.startswith("*") else match[1]) + place.text[end:]
        place.refuse(f"{token[0]!r} is not a mark of declarations", start, start + 1, whole=whole)
    if operator := re.match(r"//|[-+*/%]", token):
        left, right = place.text[:start].rstrip(), place.text[end:].lstrip()
        if not left and operator.group() != token:
            at = (start, start + operator.end())
            place.refuse("a dim begins with a name or a number", *at, instead="")
        right = place.text[end:] if operator.group() != token else right or "1"
        whole = f"{left or 'seq'}{token}{right}"
        place.refuse("a derived size is written without spaces", start, start + operator.end(), whole=whole)
    if re.fullmatch(r"\.+", token):
        place.refuse(f"{token!r} is no dim", start, end, instead="...")
    expr = read_size(place, start, end)
    if isinstance(expr, Number):
        if expr.value < 0:
            place.refuse(f"no size is negative, and this is {expr.value}", start, end, instead=str(-expr.value))
        return Dim(token, expr)
    if not isinstance(expr, Name):
        value = constant_value(expr)
        if value is not None:
            what = f"this is {value} whatever its names are"
            place.refuse(what, start, end, instead=str(abs(value)))
    return Dim("".join(token.split()), expr)


def _read_marked(place: Place, start: int, end: int) -> Dim:
    name = place.text[start : end - 1]
    if name == "_":
        return Dim("_!", None, oblivious=True)
    if name.endswith("!"):
        place.refuse("the mark stands once", end - 1, end, instead="")
    if not re.fullmatch(r"[^\W\d]\w*", name):
        what = "a static size needs no mark" if name.isdigit() else "the mark goes to a name, not to a derived size"
        place.refuse(what, end - 1, end, instead="")
    check_name(place, name, start)
    return Dim(f"{name}!", Name(name), oblivious=True)


def closest(name: str, known: tuple[str, ...]) -> str | None:
    """The known name that was probably meant."""
    found = difflib.get_close_matches(name, known, 1, 0.5)
    return found[0] if found else next((k for k in known if k.lower() == name.lower()), None)
