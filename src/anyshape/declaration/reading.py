"""Text to expressions and clauses.

Owns the grammar of sizes and invariants: names and whole numbers with `+ - * // %`, comparisons, `and`. A scan finds
everything that does not belong and says where; what passes it is given to Python's own `ast`. Nothing is ever evaluated
as code.
"""

from __future__ import annotations

import ast
import dataclasses
import keyword
import re
from collections.abc import Mapping
from typing import Final, NoReturn

from anyshape.declaration.expression import (
    ARITHMETIC,
    COMPARISONS,
    Clause,
    Comparison,
    Expression,
    Name,
    Number,
    operation,
)
from anyshape.declaration.place import Place

LARGEST: Final = 2**63 - 1
_LONGEST: Final = 1000
_DEEPEST: Final = 80

# Words that read as something else than the name of a size.
RESERVED: Final = frozenset(
    (
        "self",
        "args",
        "kwargs",
        "shape",
        "size",
        "min",
        "max",
        "abs",
        "len",
        "int",
        "float",
        "sum",
        "pow",
        "Mod",
        "FloorDiv",
    )
)

_TOKEN = re.compile(
    r"""
    (?P<float>\d[\d_]*\.\d*(?:[eE][+-]?\d+)?|\.\d+|\d+[eE][+-]?\d+)
  | (?P<number>\d\w*)
  | (?P<access>[^\W\d]\w*(?:\.\w+\([^)]*\)|\.\w+|\[[^\]]*\])+)
  | (?P<name>[^\W\d]\w*)
  | (?P<string>'[^']*'?|"[^"]*"?)
  | (?P<op>\.\.\.|===|!==|\*\*|//|<=|>=|==|!=|<>|<<|>>|&&|\|\||:=|->|=<|=>|\S)
    """,
    re.VERBOSE,
)

_INSTEAD: Final[Mapping[str, str]] = {
    "/": "//",
    "=": "==",
    "===": "==",
    "!==": "!=",
    "=<": "<=",
    "=>": ">=",
    "<>": "!=",
    "&&": "and",
    "&": "and",
    ",": '", "',  # two clauses
    ";": '", "',
}
_ADVICE: Final[Mapping[str, str]] = {
    "**": "write the product out: n*n",
    "||": "one clause cannot offer a choice: declare the range that holds both",
    "|": "write divisibility as seq % 8 == 0",
    "^": "write the product out: n*n",
    "!": 'the mark stands right after a name in shapes: "batch! seq"',
}


@dataclasses.dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def check_name(place: Place, name: str, start: int) -> None:
    """Refuse a word that cannot name a size."""
    end = start + len(name)
    if not name.isidentifier():
        place.refuse(
            f"{name!r} is not a name", start, end, fix="letters, digits and _, not beginning with a digit: seq_len"
        )
    if keyword.iskeyword(name) and place.option != "shapes":
        what = f"{name!r} is a keyword of Python and not part of declarations"
        fix = (
            'a range: "1 <= batch <= 2"' if name == "in" else "names and whole numbers with + - * // % and comparisons"
        )
        place.refuse(what, start, end, fix=fix, instead="==" if name == "is" else None)
    if keyword.iskeyword(name):
        place.refuse(
            f"{name!r} is a keyword of Python and cannot name a size", start, end, instead=f"{name.lower()}_size"
        )
    if name in RESERVED:
        place.refuse(f"{name!r} is reserved and cannot name a size", start, end, instead=f"{name.lower()}_size")
    if name.startswith("__") or not name.strip("_"):
        instead = name.strip("_") or " ".join("_" * len(name))
        place.refuse(f"{name!r} cannot name a size", start, end, instead=instead)


def read_size(place: Place, start: int, end: int) -> Expression:
    """The expression of a dim, `place.text[start:end]`."""
    tokens = _scan(place, start, end)
    for token in tokens:
        if token.text in COMPARISONS or token.text == "%":
            # The dim by its name, and what was said of it as an invariant.
            name = next((t.text for t in tokens if t.kind == "name"), "n")
            shape = place.pasted.replace("{}", " ".join(f"{place.text[:start]}{name}{place.text[end:]}".split()), 1)
            clause = "".join(place.text[start:end].split()) + (" == 0" if token.text == "%" else "")
            what = "a dim cannot be a remainder" if token.text == "%" else "a dim cannot be a comparison"
            place.refuse(what, token.start, token.end, fix=f'{shape}, where=["{clause}"]')
    _check_order(place, tokens, start, end)
    tree, offset = _tree(place, start, end)
    return _Reader(place, offset).expression(tree)


def read_clause(place: Place, *, origin: str = "where") -> Clause:
    """The clause in the whole text of the place."""
    text = place.text
    if not text.strip():
        place.refuse("an empty clause says nothing", instead="1 <= batch")
    if len(text) > _LONGEST:
        place.refuse(f"a clause of {len(text)} characters is too long", _LONGEST, fix="several clauses, a fact each")
    tokens = _scan(place, 0, len(text))
    _check_order(place, tokens, 0, len(text))
    tree, offset = _tree(place, 0, len(text))
    comparisons = _Reader(place, offset).comparisons(tree)
    clause = Clause(" ".join(text.split()), comparisons, origin)
    if not clause.names:
        place.refuse("this clause compares numbers and names no size", fix='name a size of shapes: "1 <= batch"')
    return clause


def _scan(place: Place, start: int, end: int) -> list[_Token]:
    tokens: list[_Token] = []
    position = start
    while (match := _TOKEN.search(place.text, position, end)) is not None:
        tokens.append(_Token(str(match.lastgroup), match.group(), match.start()))
        position = match.end()
    for token in tokens:
        _check_token(place, token, following=place.text[token.end : end].lstrip()[:1])
    return tokens


def _check_token(place: Place, token: _Token, *, following: str) -> None:
    text, at = token.text, (token.start, token.end)
    if token.kind == "float":
        value = float(text.replace("_", ""))
        whole = str(int(value)) if 1 <= value <= LARGEST else "1"
        place.refuse(f"{text} is no whole number, and sizes are", *at, instead=whole)
    elif token.kind == "number":
        _check_number(place, token)
    elif token.kind == "access":
        root = re.split(r"\W", text)[0]
        fix = f'name that dim: shapes={{"{root}": "n ..."}}, and write n here'
        place.refuse(f"{text!r} is not the name of a size", *at, fix=fix)
    elif token.kind == "string":
        place.refuse("a text within the text", *at, instead=re.sub(r"\W", "", text) or "n")
    elif token.kind == "name":
        if following == "(" and not keyword.iskeyword(text):
            advice = {"Mod": "seq % 8 == 0", "FloorDiv": "seq//8"}
            advice |= {"min": 'two clauses: "n <= a", "n <= b"', "max": 'two clauses: "n >= a", "n >= b"'}
            fix = advice.get(text, "names and whole numbers with + - * // %")
            place.refuse(f"{text!r} is a function, and there are none in declarations", *at, fix=fix)
        if text in ("or", "not") and place.option != "shapes":
            fix = "declare the range that holds both" if text == "or" else 'turn the comparison round: "batch != 1"'
            place.refuse(f"{text!r} is not part of declarations", *at, fix=fix)
        elif text == "_":
            fix = "give the dim a name in shapes, and use it here"
            place.refuse("'_' is any size and has no value to compute with", *at, fix=fix)
        elif text != "and" or place.option == "shapes":
            check_name(place, text, token.start)
    elif text not in ARITHMETIC and text not in COMPARISONS and text not in ("(", ")"):
        fix = _ADVICE.get(text, "names and whole numbers with + - * // %")
        instead = _INSTEAD.get(text)
        if place.option == "shapes" and text not in _ADVICE:
            instead = "//" if text == "/" else f" {text} " if text == "..." else " "
        place.refuse(f"{text!r} is not part of declarations", *at, fix=fix, instead=instead)


def _check_number(place: Place, token: _Token) -> None:
    text, at = token.text, (token.start, token.end)
    if not re.fullmatch(r"[0-9]+(?:_[0-9]+)*", text):
        split = re.match(r"([0-9]+)_?([^\W\d_]\w*)$", text)
        instead = f"{split[1]}*{split[2]}" if split else re.sub("[^0-9]", "", text).lstrip("0") or "512"
        if re.fullmatch("0[xX][0-9a-fA-F]{1,15}", text):
            instead = str(int(text, 16))
        place.refuse(f"{text!r} is neither a number nor a name", *at, instead=instead)
    digits = text.replace("_", "")
    if len(digits) > 1 and digits.startswith("0"):
        place.refuse(f"{text!r} begins with 0", *at, instead=digits.lstrip("0") or "0")
    if len(digits) > 19 or int(digits) > LARGEST:
        place.refuse("no size is as large as this", *at, fix=f"at most {LARGEST}, or a name without an upper bound")


def _check_order(place: Place, tokens: list[_Token], start: int, end: int) -> None:
    """Refuse what is made of the right tokens in a wrong order; what remains `ast` reads."""
    operand_next, open_at = True, []
    previous: _Token | None = None
    for token in tokens:
        at = (token.start, token.end)
        if token.text == "(" or token.kind in ("number", "float") or (token.kind == "name" and token.text != "and"):
            if not operand_next:
                assert previous is not None
                join = "*" if previous.kind == "number" else "+ "
                place.refuse(f"there is no operator before {token.text!r}", *at, instead=join + token.text)
            operand_next = token.text == "("
            if token.text == "(":
                open_at.append(token)
        elif token.text == ")":
            if not open_at:
                place.refuse("this parenthesis was never opened", *at, instead="")
            if operand_next:
                place.refuse("a size is missing before this parenthesis", *at, instead=f"1{token.text}")
            open_at.pop()
        elif operand_next and token.text not in ("-", "+"):
            instead = f"1 {token.text}" if previous is None and token.text in COMPARISONS else ""
            place.refuse(f"a size is missing before {token.text!r}", *at, instead=instead)
        else:
            operand_next = True
        previous = token
    if open_at:
        at = (open_at[-1].start, open_at[-1].end)
        instead = f"({place.text[at[1] : end].strip()})"
        place.refuse("this parenthesis is never closed", *at, whole=place.text[: at[0]] + instead + place.text[end:])
    if operand_next:
        last = tokens[-1] if tokens else None
        at = (last.start, last.end) if last else (start, end)
        place.refuse(
            "a size is missing after this", *at, instead="" if last is None or last.text == "and" else f"{last.text}1"
        )


def _tree(place: Place, start: int, end: int) -> tuple[ast.expr, int]:
    """The tree, and what to add to its columns for a position in the text of the place."""
    # In parentheses, so that leading space and line ends mean nothing.
    text = "(" + re.sub(r"\s", " ", place.text[start:end]) + ")"
    try:
        return ast.parse(text, mode="eval").body, start - 1
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        place.refuse("this cannot be read", start, end, fix="names and whole numbers with + - * // % and comparisons")


_OPS: Final[Mapping[type, str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


class _Reader:
    """A tree of Python to an expression of ours."""

    def __init__(self, place: Place, offset: int) -> None:
        self._place = place
        self._offset = offset

    def comparisons(self, node: ast.expr) -> tuple[Comparison, ...]:
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            return tuple(c for value in node.values for c in self.comparisons(value))
        if not isinstance(node, ast.Compare):
            compared = " == 0" if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) else " >= 1"
            self._refuse(node, "this is a size, not a fact about one", after=compared)
        sides = [self.expression(node.left), *(self.expression(c) for c in node.comparators)]
        return tuple(
            Comparison(left, _OPS[type(op)], right)
            for left, op, right in zip(sides[:-1], node.ops, sides[1:], strict=True)
        )

    def expression(self, node: ast.expr, depth: int = 0) -> Expression:
        if depth > _DEEPEST:
            self._refuse(node, "this is nested too deeply", "name a part of it in shapes")
        if isinstance(node, ast.Name):
            return Name(node.id)
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return Number(node.value)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return operation("-", Number(0), self.expression(node.operand, depth + 1))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd):
            return self.expression(node.operand, depth + 1)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPS:
            left, right = self.expression(node.left, depth + 1), self.expression(node.right, depth + 1)
            op = _OPS[type(node.op)]
            if op in ("//", "%") and isinstance(right, Number) and right.value < 1:
                self._refuse(node.right, f"a size cannot be divided by {right.value}", instead="8")
            return operation(op, left, right)
        self._refuse(node, "a comparison cannot be part of a size", 'join comparisons with "and"')

    def _refuse(
        self, node: ast.expr, what: str, fix: str | None = None, *, instead: str | None = None, after: str | None = None
    ) -> NoReturn:
        # Columns of `ast` count bytes of the text it was given, which begins with a parenthesis of ours.
        line = ("(" + re.sub(r"\s", " ", self._place.text[self._offset + 1 :]) + ")").encode()
        start = len(line[: node.col_offset].decode(errors="ignore")) + self._offset
        end = len(line[: node.end_col_offset].decode(errors="ignore")) + self._offset
        if after is not None:
            instead = self._place.text[start:end] + after
        self._place.refuse(what, start, end, fix=fix, instead=instead)
