"""Running a script or a module as `__main__`, with edits of its text and decorated functions.

Owns the module `__main__` that a script gets, edited text in the place of a file's, and callables that are decorated
where they are defined: those of a script are used before an import hook could replace them. Knows nothing of torch.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from anyshape.declaration import spec_file
from anyshape.doctor import edits
from anyshape.doctor.edits import Edit

Decorators = Mapping[str, Callable[[Any], Any]]  # by qualified name: Class.method
Chooser = Callable[[str, str, Sequence[str]], Decorators]  # of a text, its file and the names its module goes by
_PRIVATE = "__anyshape_compiled_{}__"


def run_path(path: str, arguments: Sequence[str], *, decorators: Chooser | None = None) -> None:
    """Run a script: `python path arguments`."""
    with open(path, "rb") as file:
        text = importlib.util.decode_source(file.read())
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __cached__=None, __package__=None, __spec__=None)
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    with _as_main(main, [path, *arguments], os.path.dirname(os.path.abspath(path))):
        _execute(main, path, text, decorators)


def run_module(name: str, arguments: Sequence[str], *, decorators: Chooser | None = None) -> None:
    """Run a module: `python -m name arguments`."""
    with _as_main(None, ["-m", *arguments], os.getcwd()):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
        loader = spec.loader if spec is not None else None
        if spec is None or not isinstance(loader, importlib.abc.InspectLoader):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        path = spec.origin or name
        main = types.ModuleType("__main__")
        main.__dict__.update(__file__=path, __cached__=spec.cached, __package__=spec.parent, __spec__=spec)
        main.__loader__ = loader
        with _as_main(main, [path, *arguments], os.getcwd()):
            _execute(main, path, loader.get_source(spec.name) or "", decorators)


@contextlib.contextmanager
def edited(changes: Sequence[Edit]) -> Iterator[None]:
    """Files are read with these edits made, whether they are run or imported."""
    by_file: dict[str, list[Edit]] = {}
    for edit in changes:
        by_file.setdefault(os.path.abspath(edit.file), []).append(edit)
    finder = _Finder({file: _changed(file, found) for file, found in by_file.items()})
    _edited.append(finder)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        _edited.remove(finder)


class _Finder(importlib.abc.MetaPathFinder):
    """Modules whose file was edited are made from the edited text."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        origin = os.path.abspath(spec.origin) if spec is not None and spec.origin else ""
        if spec is None or spec.loader is None or origin not in self.texts:
            return None
        spec.loader.exec_module = functools.partial(_execute_module, origin)  # type: ignore[method-assign]
        return spec


_edited: list[_Finder] = []


def _execute_module(path: str, module: types.ModuleType) -> None:
    _execute(module, path, "", None)


def _execute(module: types.ModuleType, path: str, text: str, choose: Chooser | None) -> None:
    """Run the text of a module, edited and decorated as was asked for."""
    changed = next((f.texts[os.path.abspath(path)] for f in _edited if os.path.abspath(path) in f.texts), None)
    if changed is not None:
        text = changed
        # Dynamo and tracebacks read lines from here; without a time of change the entry is not checked.
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    tree = ast.parse(text, path)
    decorators = {} if choose is None else choose(text, path, spec_file.names_of_main())
    for number, (name, decorate) in enumerate(decorators.items()):
        node = definition(tree, name)
        if node is not None:
            private = _PRIVATE.format(number)
            module.__dict__[private] = decorate
            _decorate(node, private)
    exec(compile(tree, path, "exec", dont_inherit=True), module.__dict__)


def definition(tree: ast.Module, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The last definition of a function in a module, as `Class.method`; a class stands for its `forward`."""
    found: ast.AST = tree
    for part in name.split("."):
        inside = [n for n in _statements(found) if getattr(n, "name", None) == part]
        if not inside:
            return None
        found = inside[-1]
    if isinstance(found, ast.ClassDef):
        inside = [n for n in _statements(found) if getattr(n, "name", None) == "forward"]
        found = inside[-1] if inside else found
    return found if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef) else None


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """What is defined in a body, also under an `if` or a `try`, but not in a function of it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child
        elif isinstance(child, ast.stmt | ast.ExceptHandler):
            yield from _statements(child)


def _decorate(node: ast.FunctionDef | ast.AsyncFunctionDef, private: str) -> None:
    first = node.decorator_list[0] if node.decorator_list else node  # the first line of the function stays what it was
    name = ast.Name(private, ast.Load())
    ast.copy_location(name, first)
    node.decorator_list.insert(0, name)


def _changed(file: str, changes: Sequence[Edit]) -> str:
    with open(file, "rb") as stream:
        return edits.apply(importlib.util.decode_source(stream.read()), changes)


@contextlib.contextmanager
def _as_main(main: types.ModuleType | None, arguments: list[str], folder: str) -> Iterator[None]:
    argv, path, before = sys.argv, list(sys.path), sys.modules.get("__main__")
    sys.argv = arguments
    sys.path.insert(0, folder)
    if main is not None:
        sys.modules["__main__"] = main
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path
        if before is not None:
            sys.modules["__main__"] = before
