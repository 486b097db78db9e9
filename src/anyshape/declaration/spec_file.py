"""`anyshape.toml`: finding and reading declarations for callables whose code is not touched.

Owns finding and reading the file: one that its user wrote, in the project at hand. Each table is named by the callable,
`["package.module:Class.forward"]`, and has the words that `anyshape.compile` takes; an error names the file and the
line. Knows nothing of torch.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import pathlib
import re
import sys
import warnings
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from anyshape import errors
from anyshape.declaration import Declaration, DeclarationWarning, MalformedError
from anyshape.declaration.place import Place, brief, kind
from anyshape.declaration.shape import closest
from anyshape.errors import DeclarationError
from anyshape.foundation import local_files

FILE_NAME: Final = "anyshape.toml"
VARIABLE: Final = "ANYSHAPE_SPEC"
MAIN: Final = "__main__"
WORDS: Final = ("shapes", "where", "layout", "hints", "specialize", "semantics", "on_new_behavior")
SWITCHES: Final[Mapping[str, type]] = {"compile": bool, "fullgraph": bool, "backend": str, "mode": str}
KEYS: Final = (*WORDS, *SWITCHES)
MOST_BYTES: Final = 1 << 20  # of a file
_MOST_DOTS: Final = 64  # in a line, outside of texts: what reads TOML takes a time that is cubic in the parts of a key

_TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_TEXTS = re.compile(r""""[^"]*"|'[^']*'""")
_AT = re.compile(r"\(at line (\d+), column (\d+)\)")


@dataclasses.dataclass(frozen=True)
class Entry:
    """What the file says about one callable."""

    module: str
    name: str  # qualified within the module: Class.forward
    words: Mapping[str, Any]  # for `Declaration.parse`
    compile: bool
    fullgraph: bool
    backend: str | None
    mode: str | None
    source: Source
    line: int

    @property
    def target(self) -> str:
        return f"{self.module}:{self.name}"

    def declaration(self, signature: inspect.Signature | None = None) -> Declaration:
        """The declaration, checked against the callable's signature where it is known."""
        try:
            return Declaration.parse(**self.words, signature=signature)
        except MalformedError as error:
            raise self.source.located(error, self.target) from None
        except DeclarationError as error:
            where = f'{self.source.path}:{self.line} in ["{self.target}"]\n         {error.where}'
            raise DeclarationError(error.what, where=where, fix=error.fix, code=error.code) from None


@dataclasses.dataclass(frozen=True)
class Source:
    """The text of a file, and where things are in it."""

    path: pathlib.Path
    text: str

    def refuse(
        self, what: str, line: int, part: str = "", *, fix: str | None = None, code: str | None = None
    ) -> NoReturn:
        raise DeclarationError(what, where=self._marked(line, part), fix=fix, code=code)

    def located(self, error: MalformedError, target: str) -> DeclarationError:
        """The same error at its line of the file, its fix as the line should be."""
        place, fix = error.place, error.fix
        assert place is not None
        line = self.line_of(target, place.option, place.item if isinstance(place.item, str) else None, place.text)
        written = self.lines[line - 1].strip()
        # A word, not a part of one: the `n` of `hints = { n = 3 }`.
        found = re.search(rf"(?<!\w){re.escape(place.text)}(?!\w)", written) if place.text else None
        start, end = error.span
        if found is not None:
            shown = Place("", None, "", written, "").marked(found.start() + start, found.start() + max(end, start + 1))
            if error.corrected is not None:
                fix = written[: found.start()] + error.corrected + written[found.end() :]
        else:
            shown = place.marked(start, end)
        where = f"{self.path}:{line}\n         {shown}"
        return DeclarationError(error.what, where=where, fix=_as_toml(fix), code=error.code)

    @functools.cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @functools.cached_property
    def _sections(self) -> dict[str, list[tuple[int, list[str], int]]]:
        """By the first key of their headers: where sections begin, the keys there, and the line after the last."""
        headers = [(n, header) for n, line in enumerate(self.lines, 1) if (header := _header(line)) is not None]
        ends = [*(n for n, _ in headers), len(self.lines) + 1][1:]
        found: dict[str, list[tuple[int, list[str], int]]] = {}
        for (begin, header), end in zip(headers, ends, strict=True):
            found.setdefault(header[0] if header else "", []).append((begin, header, end))
        return found

    def line_of(self, target: str, option: str | None = None, item: str | None = None, text: str = "") -> int:
        """The line, from 1, of an option in the table of a target, or of an item or a text in it."""
        best = 0
        for begin, header, end in self._sections.get(target, ()):
            found_option = option is not None and option in header[1:]
            if best == 0 or found_option:
                best = begin
            if option is None:
                return best
            found = self._line_in(range(begin + 1, end), header, found_option, option, item, text)
            if found[1]:
                return found[0]
            best = found[0] or best
        return best or 1

    def _line_in(
        self, numbers: range, depth: list[str], found_option: bool, option: str, item: str | None, text: str
    ) -> tuple[int, bool]:
        """The best line of a section, 0 for none, and whether there is none better."""
        best = 0
        for number in numbers:
            line = self.lines[number - 1]
            key = _key(line)
            if key and (depth[1:] + key)[:1] == [option]:
                found_option, best = True, number
            elif key and len(depth) == 1:
                found_option = False
            if found_option and (item is None or item in line) and (text or item is not None) and text in line:
                return number, True
            if found_option and item is not None and key and (depth[1:] + key)[1:2] == [item]:
                best = number
        return best, False

    def _marked(self, line: int, part: str) -> str:
        lines = self.lines
        written = lines[line - 1].strip() if 0 < line <= len(lines) else ""
        start = max(0, written.find(part)) if part else 0
        shown = Place("", None, "", written, "").marked(start, start + len(part) if part else None)
        return f"{self.path}:{line}\n         {shown}"


@dataclasses.dataclass(frozen=True)
class SpecFile:
    """A file that was read, and the callables it names."""

    path: pathlib.Path
    entries: tuple[Entry, ...]

    @functools.cached_property
    def _by_name(self) -> dict[tuple[str, str], Entry]:
        return {(e.module, e.name): e for e in self.entries}

    def entry(self, module: str, name: str) -> Entry | None:
        modules = names_of_main() if module == MAIN else (module,)
        return next((e for m in modules if (e := self._by_name.get((m, name))) is not None), None)


def names_of_main() -> tuple[str, ...]:
    """What a table may call the script that is running: `train` for `train.py`, the module of `-m`, or `__main__`."""
    main = sys.modules.get(MAIN)
    spec = getattr(main, "__spec__", None)
    name = spec.name if spec is not None else pathlib.Path(str(getattr(main, "__file__", ""))).stem
    return (name, MAIN) if re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", name) else (MAIN,)


def find(start: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None) -> pathlib.Path | None:
    """The file named by `ANYSHAPE_SPEC`, or the nearest `anyshape.toml` up to the project's root.

    The root is a folder with `pyproject.toml` or `.git`; where there is none, folders that are this user's alone are
    looked into. A file that is another user's, or that anybody may write to, says nothing: one warning names it.
    """
    named = (os.environ if environ is None else environ).get(VARIABLE, "").strip()
    if named:
        path = pathlib.Path(os.path.expanduser(named))
        if not os.path.isfile(path):
            what = f"{VARIABLE} names a file that is not there"
            raise DeclarationError(what, where=f"{VARIABLE}={named}", fix=f"unset {VARIABLE}, or write {named}")
        return path
    try:
        folder = pathlib.Path(os.path.realpath(start if start is not None else os.getcwd()))
    except OSError:
        return None  # the working directory is gone
    folders = (folder, *folder.parents)
    # What may not be looked into has none: os.path says so, where pathlib raises.
    root = next((i for i, f in enumerate(folders) if any(os.path.exists(f / name) for name in _ROOT)), None)
    for i, inner in enumerate(folders):
        if i and (i > root if root is not None else not _is_own(inner)):
            return None
        path = inner / FILE_NAME
        if os.path.isfile(path):
            if _is_own(path):
                return path
            _say_ignored(path)
    return None


_ROOT: Final = ("pyproject.toml", ".git")


def _is_own(path: pathlib.Path) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    return local_files.is_own(status)


@functools.cache
def _say_ignored(path: pathlib.Path) -> None:
    what = f"{path} is ignored: it is another user's, or anybody may write to it; if you mean it, {VARIABLE}={path}"
    warnings.warn(what, DeclarationWarning, stacklevel=2)


def load(start: str | os.PathLike[str] | None = None) -> SpecFile | None:
    """Find and read the file, if there is one."""
    path = find(start)
    if path is None:
        return None
    try:
        status = path.stat()
    except OSError:
        return None  # it is gone
    return _read_once(path, (status.st_ino, status.st_size, status.st_mtime_ns), bool(os.environ.get(VARIABLE)))


@functools.lru_cache(maxsize=8)
def _read_once(path: pathlib.Path, version: tuple[int, ...], named: bool) -> SpecFile | None:
    return _read(path, own=not named)


def read(path: str | os.PathLike[str]) -> SpecFile:
    """Read a file. Its words are checked here as far as they can be without the callables; see `Entry.declaration`."""
    found = _read(pathlib.Path(path), own=False)
    assert found is not None
    return found


def _read(where: pathlib.Path, *, own: bool) -> SpecFile | None:
    """None for a file that turns out to be another's where it must not be: it may have been exchanged meanwhile."""
    data = b""
    try:
        data, is_own = local_files.read_own(str(where), most=MOST_BYTES)
        if own and not is_own:
            _say_ignored(where)
            return None
        source = Source(where, data.decode("utf-8"))
    except OSError as error:
        what = f"the file cannot be read: {error.strerror or error}"
        raise DeclarationError(what, where=str(where), fix=f"unset {VARIABLE}") from error
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DeclarationError("the file is not UTF-8", where=f"{where}:{line}", fix="save it as UTF-8") from error
    entries = tuple(_read_entry(source, target, table) for target, table in _tables(source).items())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeclarationWarning)  # said when the declaration is used
        for entry in entries:
            entry.declaration()
    return SpecFile(where, entries)


def _tables(source: Source) -> dict[str, Any]:
    toml = _toml()
    what = "this is nested more deeply than anything that is read here"
    for number, text in enumerate(source.lines, 1):
        if text.count(".") > _MOST_DOTS and _TEXTS.sub("", text).count(".") > _MOST_DOTS:
            raise DeclarationError(what, where=f"{source.path}:{number}", fix=f"unset {VARIABLE}")
    try:
        tables: dict[str, Any] = toml.loads(source.text)
    except RecursionError:
        raise DeclarationError(what, where=str(source.path), fix=f"unset {VARIABLE}") from None
    except ValueError as error:  # TOML's own, and that of a number too long
        message = str(error)
        at = _AT.search(message)
        count = len(source.lines) or 1
        line, column = (int(at[1]), int(at[2])) if at else (count, 1)
        line = min(line, count)
        written = (source.lines or [""])[line - 1]
        shown = Place("", None, "", written, "").marked(column - 1, column)
        what = f"this is not TOML: {_AT.sub('', message).replace('(at end of document)', '').strip()}"
        fix = '["package.module:Class.forward"]\nshapes = { x = "batch seq 512" }'
        raise DeclarationError(what, where=f"{source.path}:{line}\n         {shown}", fix=fix) from None
    return tables


def _read_entry(source: Source, target: str, table: Any) -> Entry:
    line = source.line_of(target)
    if not isinstance(table, dict):
        line = next((n for n, t in enumerate(source.lines, 1) if _key(t)[:1] == [target]), 1)
        what = f"{target!r} stands outside every table; a table is named by the callable it is about"
        source.refuse(what, line, target, fix=f'["package.module:Class.forward"]\n{target} = {brief(table)}')
    if not _TARGET.fullmatch(target):
        # [a.b] without quotes is a table in a table.
        nested = next((k for k, v in table.items() if isinstance(v, dict) and k not in KEYS), None)
        parts = [part for part in re.split(r"\W+", target) if part] + ([nested] if nested else [])
        *folders, name = parts or ["name"]  # of nothing but signs
        fix = f'["{".".join(folders) or "module"}:{name}"]'
        line = line if source.line_of(target) > 1 else _first_header(source, target)
        source.refuse(f"{target!r} names no callable: a table is called module:qualified.name", line, target, fix=fix)
    for key, value in table.items():
        at = source.line_of(target, key)
        if key not in KEYS:
            best = closest(key, KEYS)
            fix = f"{best} = {brief(value)}" if best else f"one of {', '.join(KEYS)}"
            source.refuse(f"there is no option {key!r}", at, key, fix=fix, code="AS011")
        expected = SWITCHES.get(key)
        if expected is not None and type(value) is not expected:
            example = "true" if expected is bool else '"inductor"' if key == "backend" else '"max-autotune"'
            what = f"{key} is {'true or false' if expected is bool else 'a text'}, and this is {kind(value)}"
            source.refuse(what, at, key, fix=f"{key} = {example}", code="AS007")
    module, _, name = target.partition(":")
    return Entry(
        module=module,
        name=name,
        words={k: v for k, v in table.items() if k in WORDS},
        compile=table.get("compile", False),
        fullgraph=table.get("fullgraph", False),
        backend=table.get("backend"),
        mode=table.get("mode"),
        source=source,
        line=line,
    )


def _header(line: str) -> list[str] | None:
    """The keys of a table header, or None where the line is none."""
    stripped = line.strip()
    if not stripped.startswith("["):
        return None
    try:
        table: Any = _toml().loads(stripped)
    except (ValueError, RecursionError):
        return None
    return _nested_keys(table)


def _key(line: str) -> list[str]:
    """The keys before `=` on a line, or none."""
    match = re.match(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""", line)
    if match is None:
        return []
    try:
        return _nested_keys(_toml().loads(f"{match[1]} = {{}}"))
    except (ValueError, RecursionError):
        return []


def _nested_keys(table: Any) -> list[str]:
    keys: list[str] = []
    while isinstance(table, list) and table:
        table = table[0]
    while isinstance(table, dict) and table:
        keys.append(next(iter(table)))
        table = table[keys[-1]]
        if isinstance(table, list) and table:
            table = table[0]
    return keys


def _as_toml(fix: str | None) -> str | None:
    """A fix for a call as one for a file: `hints={"n": 8}` is `hints = { "n" = 8 }`."""
    if fix is None:
        return None
    fix = re.sub(r'^(\w+)=\{"([^"]*)": (.*)\}$', r'\1 = { "\2" = \3 }', fix)
    return re.sub(r'^(\w+)=(["\[])', r"\1 = \2", fix)


def _first_header(source: Source, target: str) -> int:
    lines = source.lines
    return next((n for n, t in enumerate(lines, 1) if (_header(t) or _key(t))[:1] == [target]), 1)


def _toml() -> Any:
    if sys.version_info >= (3, 11):
        import tomllib

        return tomllib
    try:
        import tomli
    except ImportError:
        raise errors.missing("tomli", needed_for=f"reading {FILE_NAME} on Python 3.10") from None
    return tomli
