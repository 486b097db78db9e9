"""Declarations without code: `anyshape.toml` for callables of packages that are not touched.

Owns the import hook. A callable that the file says to compile is replaced, by its compiled self, when its module has
been imported (or at once if it was before); `remove` puts everything back. What the file may say is `spec_file`'s.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import os
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, cast

from anyshape import compiler, spec_file
from anyshape.errors import DeclarationError
from anyshape.spec_file import Entry, SpecFile


@dataclasses.dataclass(frozen=True)
class Replaced:
    """A callable that was replaced: where it stands, and what stood there."""

    holder: Any
    name: str
    original: Any


class Hook(importlib.abc.MetaPathFinder):
    """Compiles what a file names, module by module as they are imported."""

    def __init__(self, spec: SpecFile) -> None:
        self.spec = spec
        self.replaced: list[Replaced] = []
        self._wanted = {e.module for e in spec.entries if e.compile}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._wanted:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            found = find(fullname, path, target) if finder is not self and find is not None else None
            if found is not None:
                if found.loader is not None and hasattr(found.loader, "exec_module"):
                    # On the instance: other users of the loader's class are not concerned.
                    found.loader.exec_module = functools.partial(self._execute, found.loader.exec_module)
                return found
        return None

    def _execute(self, execute: Callable[[types.ModuleType], None], module: types.ModuleType) -> None:
        execute(module)
        self.apply(module)

    def apply(self, module: types.ModuleType) -> None:
        """Replace every callable of this module that the file says to compile."""
        for entry in self.spec.entries:
            if entry.compile and entry.module == module.__name__:
                self._replace(entry, module)

    def _replace(self, entry: Entry, module: types.ModuleType) -> None:
        holder: Any = module
        *path, name = entry.name.split(".")
        for part in path:
            holder = getattr(holder, part, None)
        original = inspect.getattr_static(holder, name, None) if holder is not None else None
        if isinstance(original, type) and hasattr(original, "forward"):
            holder, name, original = original, "forward", inspect.getattr_static(original, "forward")
        if not inspect.isfunction(original):
            what = f"{entry.module} has no function {entry.name}"
            if original is not None:
                what = f"{entry.name} of {entry.module} is {type(original).__name__}, and functions are compiled"
            entry.source.refuse(what, entry.line, entry.name, fix=f'["{entry.module}:Class.forward"]', code="AS011")
        setattr(holder, name, compile_entry(entry, original))
        self.replaced.append(Replaced(holder, name, original))


def compile_entry(entry: Entry, function: Callable[..., Any]) -> Any:
    """A function compiled as its entry says."""
    entry.declaration(inspect.signature(function))  # an error names the line of the file
    backend = "inductor" if entry.backend is None else entry.backend
    return compiler.compile(
        function, fullgraph=entry.fullgraph, mode=cast(Any, entry.mode), backend=backend, **entry.words
    )


_installed: list[Hook] = []


def install(spec: SpecFile | None = None) -> Hook | None:
    """Turn on what a file declares: the one given, or the one found; None where there is none."""
    found = spec_file.load() if spec is None else spec
    if found is None:
        return None
    hook = Hook(found)
    sys.meta_path.insert(0, hook)
    _installed.append(hook)
    for name in hook._wanted:
        if name in sys.modules:
            hook.apply(sys.modules[name])
    return hook


def remove(hook: Hook) -> None:
    """Put everything back."""
    if hook in sys.meta_path:
        sys.meta_path.remove(hook)
    if hook in _installed:
        _installed.remove(hook)
    for replaced in reversed(hook.replaced):
        setattr(replaced.holder, replaced.name, replaced.original)
    hook.replaced.clear()


def run(script: str, arguments: Sequence[str], spec: SpecFile | None = None) -> None:
    """Run a script as Python would, with what the file declares turned on."""
    import runpy

    if not os.path.isfile(script):
        raise DeclarationError(
            "there is no such script",
            where=script,
            value=f"in {os.getcwd()}",
            fix="anyshape run script.py",
            code="AS011",
        )
    hook = install(spec)
    if hook is not None:
        print(f"anyshape: {hook.spec.path} is in force", file=sys.stderr)
    arguments_before, path_before = sys.argv, list(sys.path)
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        sys.argv, sys.path[:] = arguments_before, path_before
        if hook is not None:
            remove(hook)
