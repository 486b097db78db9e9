"""From the end of a graph or of a compilation (break, error, limit) to the disease.

Owns reading the error or the reason of a graph break. Knows events and the text of torch's errors; nothing of torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from anyshape.doctor import guard_text
from anyshape.doctor.causes import LAYOUT, STRIDED, Cause
from anyshape.doctor.events import RESUMED, Compilation, GraphBreak

_DDE = re.compile(r"data-dependent (expression|branching)|GuardOnDataDependent|PendingUnbackedSymbol", re.IGNORECASE)
_EXPRESSION = re.compile(r"data-dependent expression (?P<expr>[^\n]*?)(?: \(unhinted|\n|$)")
_CAUSED = re.compile(r"Caused by: (?P<where>[^\n]*)")
_SYMBOL = re.compile(r"\b[uszf]\d+\b")
_RELATION = re.compile(r"(?P<name>Eq|Ne)\((?P<left>[^,]+), (?P<right>[^,]+)\)")
_OPERATORS = {"Eq": "==", "Ne": "!="}
_STATEMENT = re.compile(r"^\s*(if|elif|while|assert)\b")
Found = list[tuple[Cause, Compilation, float]]


def of_breaks(
    breaks: Sequence[GraphBreak],
    compilations: Sequence[Compilation],
    found: dict[tuple[object, ...], Found],
) -> set[tuple[str, int]]:
    """Findings for graph breaks; given back are the lines of those that are DDEs."""
    by_id = {(c.pid, c.id): c for c in compilations}
    lines: set[tuple[str, int]] = set()
    for broken in breaks:
        compilation = by_id.get((broken.pid, broken.id))
        if compilation is None:
            compilation = Compilation(broken.id, "", broken.file, broken.line, broken.time, 0.0, pid=broken.pid)
        cause = _of_text(broken.reason, broken.file, broken.line, broken.code, symbols=broken.symbols)
        if cause.code in ("D120", "D121", "D140", "D141"):
            lines.add((cause.file, cause.line))
        # What follows a break is compiled on its own; that is what it costs.
        resumed = [c for c in compilations if RESUMED.match(c.name) and (c.file, c.line) == (broken.file, broken.line)]
        first = broken is next(b for b in breaks if (b.file, b.line) == (broken.file, broken.line))
        found[cause.key].append((cause, compilation, sum(c.seconds for c in resumed) if first else 0.0))
    return lines


def of_failure(compilation: Compilation) -> Cause:
    text = compilation.error
    places = re.findall(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in [^\n]*(?:\n\s+(?P<code>[^\n]*))?', text)
    outside = [p for p in places if "/torch/" not in p[0]]
    users = [p for p in outside if "site-packages" not in p[0]] or outside
    file, line, code = users[-1] if users else (compilation.file, str(compilation.line), "")
    return _of_text(text, file, int(line), code.strip(), symbols=compilation.symbols, failed=True)


def _of_text(text: str, file: str, line: int, code: str, *, symbols: Mapping[str, str], failed: bool = False) -> Cause:
    first = headline(text)
    if _DDE.search(text) is None:
        return Cause("D123" if failed else "D122", file, line, code, "", None, (), first)
    expression = _EXPRESSION.search(text)
    caused = _CAUSED.search(text)
    where = caused["where"] if caused else ""
    # Dynamo asks for the user's own branch; any other line of torch asks for itself.
    branch = "in evaluate_expr" in where or "variables/tensor.py" in where
    users = not where or branch or ("_dynamo/" in where and _STATEMENT.match(code))
    asked_by = "user" if users else "framework"
    asked = expression["expr"].strip() if expression else ""
    detail = f"not known: {_in_words(asked, symbols)}" if asked else first
    if STRIDED.search(code):
        disease = "D140"
    elif LAYOUT.search(code):
        disease = "D141"
    else:
        disease = "D120" if asked_by == "user" else "D121"
    # A size of an argument, where the symbol is one; else a value that was computed, which has no name.
    named = [symbols[s] for s in _SYMBOL.findall(asked or " ".join(symbols)) if s in symbols]
    source, dim = next(iter(guard_text.size_sources(named[0]) if named else []), ("", None))
    return Cause(disease, file, line, code, source, dim, (), detail, asked_by)


def _in_words(expression: str, symbols: Mapping[str, str]) -> str:
    """`Eq(u0, 0)` as Python writes it, with the sizes of arguments by their names and a word on the other symbols."""
    found = _RELATION.fullmatch(expression)
    text = f"{found['left']} {_OPERATORS[found['name']]} {found['right']}" if found else expression
    unnamed = [s for s in dict.fromkeys(_SYMBOL.findall(text)) if s not in symbols]
    text = _SYMBOL.sub(lambda s: guard_text.readable(symbols.get(s[0], s[0])), text)
    verb = "is" if len(unnamed) == 1 else "are"
    return f"{text} ({', '.join(unnamed)} {verb} computed when the program runs)" if unnamed else text


def headline(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith("Encountered graph break") and len(lines) > 1:
        lines = lines[1:]
    return lines[0][:300] if lines else ""
