"""Edits of the user's source, as values.

Owns finding the place of a remedy in a file, the words in which the change is offered, and applying it to the text.
The doctor never writes the file: a trial runs the changed text, and the person pastes it. Knows nothing of torch.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

Span = tuple[int, int, int, int]  # line, column, end line, end column; columns in bytes, as in `ast`
_KEPT: Final = ("fullgraph", "backend", "mode", "options", "disable")  # options that anyshape.compile has, too
_IMPORT: Final = "import anyshape"
_DROPPED: Final = ("dynamic",)  # says which sizes are free, and with anyshape all are


@dataclasses.dataclass(frozen=True)
class Edit:
    """A part of one file to be replaced; an empty span is an insertion."""

    file: str
    span: Span
    old: str
    new: str
    decorates: bool = False  # it stands after the @ of a decorator

    @property
    def line(self) -> int:
        return self.span[0]


@dataclasses.dataclass(frozen=True)
class Source:
    """A file as it was read, and its tree."""

    file: str
    text: str
    tree: ast.Module

    def part(self, node: ast.AST) -> str:
        return ast.get_source_segment(self.text, node) or ""

    def replace(self, node: ast.expr, new: str) -> Edit:
        return Edit(self.file, _span(node), self.part(node), new, _is_decorator(self.tree, node))


def read(file: str) -> Source | None:
    """A file with its tree; None where it cannot be read, or is no Python."""
    try:
        return _read(file, os.stat(file).st_mtime_ns)
    except (OSError, ValueError, SyntaxError):
        return None


@functools.lru_cache(64)
def _read(file: str, changed: int) -> Source:
    text = pathlib.Path(file).read_text(encoding="utf-8")
    return Source(file, text, ast.parse(text))


# -- the remedies ----------------------------------------------------------------------------------------------


def with_anyshape(file: str, line: int) -> tuple[Edit, ...]:
    """`torch.compile` on a line becomes `anyshape.compile`; nothing where that cannot be written."""
    source = read(file)
    if source is None:
        return ()
    inside = list(_spanning(source.tree, line))
    calls = [n for n in inside if isinstance(n, ast.Call) and _is_torch_compile(n.func)]
    bare = [n for n in inside if _is_torch_compile(n) and _is_decorator(source.tree, n)]
    if not calls:
        return (source.replace(bare[0], "anyshape.compile"), *_imported(source)) if bare else ()
    call = min(calls, key=_length)  # the innermost
    name = call.func
    words = [k.arg for k in call.keywords]
    if any(w not in (*_KEPT, *_DROPPED) for w in words):
        return ()
    kept = [*call.args, *(k for k in call.keywords if k.arg not in _DROPPED)]
    new = f"anyshape.compile({', '.join(source.part(k) for k in kept)})"
    if len(kept) == len(call.args) + len(words):  # nothing is dropped: what is in the parentheses stays as it is
        edit = source.replace(name, "anyshape.compile") if call.lineno != call.end_lineno else source.replace(call, new)
    else:
        new = "anyshape.compile" if not kept and _is_decorator(source.tree, call) else new
        edit = source.replace(call, new)
    return (edit, *_imported(source))


def argument(file: str, span: Sequence[int], index: int, name: str, template: str) -> tuple[Edit, ...]:
    """One argument of the call at `span`, written into `template` in the place of `{}`."""
    source = read(file)
    if source is None or len(span) != 4:
        return ()
    call = next((n for n in ast.walk(source.tree) if isinstance(n, ast.Call) and _span(n) == tuple(span)), None)
    if call is None or any(isinstance(a, ast.Starred) for a in call.args[: index + 1]):
        return ()
    named = next((k.value for k in call.keywords if k.arg == name), None)
    value = named if named is not None else call.args[index] if 0 <= index < len(call.args) else None
    if value is None:
        return ()
    text = source.part(value)
    simple = isinstance(value, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    return (source.replace(value, template.format(text if simple else f"({text})")),)


def after_imports(file: str, statement: str) -> tuple[Edit, ...]:
    """A statement on a line of its own, after the imports at the top; nothing where `torch` is not imported there."""
    source = read(file)
    if source is None:
        return ()
    imports = [n for n in source.tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    if not any(isinstance(n, ast.Import) and any(a.name == "torch" and not a.asname for a in n.names) for n in imports):
        return ()
    line = max(n.end_lineno or n.lineno for n in imports if n.lineno <= imports[0].lineno + 50) + 1
    return (Edit(file, (line, 0, line, 0), "", f"{statement}\n"),)


# -- in words, and applied -------------------------------------------------------------------------------------


def said(edits: Sequence[Edit], place: str = "") -> str:
    """The change as a person would be told it: `line 5: replace `@torch.compile` by `@anyshape.compile``."""
    parts: list[str] = []
    shown = place
    for edit in edits:
        new = edit.new.strip()
        if edit.old:
            mark = "@" if edit.decorates else ""
            text = f"line {edit.line}: replace `{mark}{edit.old}` by `{mark}{new}`"
        elif new == _IMPORT:
            text = f"add `{new}` at the top"
        else:
            text = f"after line {edit.line - 1}: add `{new}`"
        parts.append(f"{shown}{text}")
        shown = ""
    return "; ".join(dict.fromkeys(parts))


def apply(text: str, edits: Iterable[Edit]) -> str:
    """The text with the edits of one file made; ValueError where one of them is about another text."""
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    for edit in sorted(dict.fromkeys(edits), key=lambda e: e.span, reverse=True):
        first, column, last, end = edit.span
        while len(lines) < last:
            lines.append(b"")
        head, tail = lines[first - 1][:column], lines[last - 1][end:]
        body = b"".join([lines[first - 1][column:], *lines[first : last - 1], lines[last - 1][:end]])
        old = lines[first - 1][column:end] if first == last else body
        if old != edit.old.encode():
            raise ValueError(f"{edit.file}:{first} is not `{edit.old}` any more")
        lines[first - 1 : last] = [head + edit.new.encode() + tail]
    return b"".join(lines).decode()


# -- reading ---------------------------------------------------------------------------------------------------


def _span(node: ast.AST) -> Span:
    found = [getattr(node, name) or 0 for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")]
    return found[0], found[1], found[2], found[3]


def _length(node: ast.AST) -> tuple[int, int]:
    first, column, last, end = _span(node)
    return last - first, end - column


def _spanning(tree: ast.AST, line: int) -> Iterator[ast.expr]:
    return (n for n in ast.walk(tree) if isinstance(n, ast.expr) and n.lineno <= line <= (n.end_lineno or n.lineno))


def _is_torch_compile(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "compile"
        and isinstance(node.value, ast.Name)
        and node.value.id == "torch"
    )


def _is_decorator(tree: ast.AST, node: ast.expr) -> bool:
    return any(node in getattr(n, "decorator_list", ()) for n in ast.walk(tree))


def _imported(source: Source) -> tuple[Edit, ...]:
    """`import anyshape` above the first import, unless it is there."""
    imports = [n for n in source.tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    if any(isinstance(n, ast.Import) and any(a.name == "anyshape" for a in n.names) for n in imports):
        return ()
    real = [n for n in imports if getattr(n, "module", None) != "__future__"]
    line = real[0].lineno if real else 1
    return (Edit(source.file, (line, 0, line, 0), "", f"{_IMPORT}\n"),)
