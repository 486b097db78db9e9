"""Writing remedies into `anyshape.toml`.

Owns how the file is changed: a table that is there keeps what it says, a key that is missing is added under its
header, a table that is missing is added at the end. The result is read before it replaces anything. Knows nothing of
torch.
"""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Iterable

from anyshape.declaration import spec_file

_HEADER = re.compile(r'^\["(?P<target>[^"]+)"\]$')
_PAIR = re.compile(r"^(?P<key>\w+) = (?P<value>.+)$")
_ITEM = re.compile(r'("[^"]*"|\w+) = ("[^"]*")')


def tables(texts: Iterable[str]) -> dict[str, dict[str, str]]:
    """What remedies say, by callable: several about one callable share a table."""
    found: dict[str, dict[str, str]] = {}
    for text in texts:
        target = ""
        for line in text.splitlines():
            match, pair = _HEADER.match(line), _PAIR.match(line)
            if match is not None:
                target = match["target"]
                found.setdefault(target, {})
            elif pair is not None and target:
                table = found[target]
                table[pair["key"]] = _merged(table.get(pair["key"]), pair["value"])
    return found


def text(texts: Iterable[str]) -> str:
    """Several declarations as one text, each callable once."""
    merged = tables(texts).items()
    parts = ["\n".join([f'["{target}"]', *(f"{k} = {v}" for k, v in table.items())]) for target, table in merged]
    return "\n\n".join(parts)


def write(texts: Iterable[str], path: str | os.PathLike[str] | None = None) -> tuple[pathlib.Path, list[str]]:
    """Put declarations into the file; given back are its path and the targets that were added or changed."""
    where = pathlib.Path(path) if path is not None else spec_file.find() or pathlib.Path(spec_file.FILE_NAME)
    before = where.read_text(encoding="utf-8") if where.exists() else ""
    text = before
    changed: list[str] = []
    for target, table in tables(texts).items():
        after = _with_table(text, target, table)
        if after != text:
            text, changed = after, [*changed, target]
    if changed:
        trial = where.with_name(where.name + ".new")
        trial.write_text(text, encoding="utf-8")
        try:
            spec_file.read(trial)  # an error here says what would be wrong, and the file is as it was
            os.replace(trial, where)
        finally:
            trial.unlink(missing_ok=True)
    return where, changed


def _with_table(text: str, target: str, table: dict[str, str]) -> str:
    lines = text.splitlines()
    header = f'["{target}"]'
    pairs = [f"{key} = {value}" for key, value in table.items()]
    if header not in (line.strip() for line in lines):
        return "\n".join([*lines, *([""] if lines else []), header, *pairs]) + "\n"
    start = next(i for i, line in enumerate(lines) if line.strip() == header)
    end = next((i for i in range(start + 1, len(lines)) if lines[i].lstrip().startswith("[")), len(lines))
    said = "\n".join(lines[start:end])
    nested = re.findall(rf'^\["{re.escape(target)}"\.(\w+)\]', text, re.MULTILINE)
    missing = [
        p for p in pairs if not re.search(rf"^\s*{p.split(' ')[0]}\b", said, re.M) and p.split(" ")[0] not in nested
    ]
    return "\n".join([*lines[: start + 1], *missing, *lines[start + 1 :]]) + "\n"


def _merged(one: str | None, other: str) -> str:
    """Two inline tables as one: shapes of several arguments."""
    if one is None or not other.startswith("{"):
        return other
    items = dict(_ITEM.findall(one))
    for key, value in _ITEM.findall(other):
        items[key] = _dims(items.get(key), value)
    return "{ " + ", ".join(f"{key} = {value}" for key, value in items.items()) + " }"


def _dims(one: str | None, other: str) -> str:
    """Two shapes of one argument: a dim that either names is named."""
    if one is None:
        return other
    left, right = one.strip('"').split(), other.strip('"').split()
    if len(left) != len(right):
        return one
    return '"' + " ".join(b if a == "_" else a for a, b in zip(left, right, strict=True)) + '"'
