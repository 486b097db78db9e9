"""The import hook of `anyshape.toml`, and `anyshape run`: declarations for code that is not touched.

Owns the import hook and `anyshape run`. A callable that the file says to compile is replaced by its compiled self when
its module has been imported (or at once if it was before); one of the script that is run is decorated where it is
defined, and where the program itself gives one to `torch.compile`, anyshape compiles it instead. `remove` undoes it.
What the file may say is `spec_file`'s.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import os
import sys
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import torch

from anyshape import compiler
from anyshape._torch.observe import trial
from anyshape._torch.runtime import compiled_modules
from anyshape.declaration import spec_file
from anyshape.declaration.spec_file import MAIN, Entry, SpecFile
from anyshape.doctor import scripts
from anyshape.errors import DeclarationError


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
        self._patch: Any = mock.patch.object(torch, "compile", self._instead_of(torch.compile))

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
        if isinstance(original, compiler.CompiledFunction):
            return  # the module gave it to torch.compile
        setattr(holder, name, compiled(entry, original))
        self.replaced.append(Replaced(holder, name, original))

    def _instead_of(self, stock: Callable[..., Any]) -> Callable[..., Any]:
        """`torch.compile` for a program whose functions the file names: those are compiled by anyshape."""

        @functools.wraps(stock)
        def compile(model: Any = None, **options: Any) -> Any:
            if model is None:
                return lambda inner: torch.compile(inner, **options)
            if _is_compiled(model):
                return _with_options(model, options)
            entry = self._entry_of(model)
            return stock(model, **options) if entry is None else compile_entry(entry, model, options)

        return compile

    def _entry_of(self, model: Any) -> Entry | None:
        named = type(model) if compiled_modules.is_module(model) else model
        module, name = str(getattr(named, "__module__", "")), str(getattr(named, "__qualname__", ""))
        names = (name, f"{name}.forward") if named is not model else (name,)
        found = (self.spec.entry(module, n) for n in names)
        return next((e for e in found if e is not None and e.compile), None)

    def decorators(self, text: str, path: str, names: Sequence[str]) -> scripts.Decorators:
        """What the callables of a script are decorated with; an error where the script has no such callable."""
        found: dict[str, Callable[[Any], Any]] = {}
        tree = ast.parse(text, path)
        for entry in self.spec.entries:
            if not entry.compile or entry.module not in names:
                continue
            if scripts.definition(tree, entry.name) is None:
                what = f"{os.path.basename(path)} has no function {entry.name}"
                entry.source.refuse(what, entry.line, entry.name, fix=f'["{names[0]}:Class.forward"]', code="AS011")
            found[entry.name] = functools.partial(compiled, entry)
        return found


_made: weakref.WeakKeyDictionary[Any, tuple[Entry, Any]] = weakref.WeakKeyDictionary()  # what was compiled from what


def _with_options(model: Any, options: dict[str, Any]) -> Any:
    """What the file had compiled where it is defined, with the options that the program now gives to torch.compile."""
    wanted = any(options.get(k) is not None for k in _SHARED)
    if wanted and isinstance(model, compiler.CompiledFunction) and model in _made:
        return compile_entry(*_made[model], options)
    if wanted and compiled_modules.is_module(model):
        forward = inspect.getattr_static(type(model), "forward", None)
        if isinstance(forward, compiler.CompiledFunction) and forward in _made:
            model.forward = types.MethodType(compile_entry(*_made[forward], options), model)
    return model


def _is_compiled(model: Any) -> bool:
    """Whether anyshape compiled it, or the `forward` of its class."""
    if isinstance(model, compiler.CompiledFunction) or compiled_modules.is_compiled(model):
        return True
    return compiled_modules.is_module(model) and isinstance(
        inspect.getattr_static(type(model), "forward", None), compiler.CompiledFunction
    )


def compiled(entry: Entry, original: Any) -> Any:
    """The callable that stands at a name, compiled as its entry says; an error at the entry's line where it is none."""
    if isinstance(original, compiler.CompiledFunction):
        return original
    original = trial.without_stock(original)
    if not inspect.isfunction(original):
        what = f"{entry.module} has no function {entry.name}"
        if original is not None:
            what = f"{entry.name} of {entry.module} is {type(original).__name__}, and functions are compiled"
        entry.source.refuse(what, entry.line, entry.name, fix=f'["{entry.module}:Class.forward"]', code="AS011")
    made = compile_entry(entry, original)
    _made[made] = (entry, original)
    return made


def compile_entry(entry: Entry, function: Any, given: dict[str, Any] | None = None) -> Any:
    """A function or module compiled as its entry says; options that the program gave to torch.compile go first."""
    entry.declaration(inspect.signature(function.forward if compiled_modules.is_module(function) else function))
    options: dict[str, Any] = {"fullgraph": entry.fullgraph, "mode": entry.mode, "backend": entry.backend or "inductor"}
    options |= {k: v for k, v in (given or {}).items() if k in _SHARED and v is not None}
    return compiler.compile(function, **options, **entry.words)


_SHARED = ("fullgraph", "backend", "mode", "options", "disable")  # of torch.compile and anyshape.compile


_installed: list[Hook] = []


def install(spec: SpecFile | None = None) -> Hook | None:
    """Turn on what a file declares: the one given, or the one found; None where there is none."""
    found = spec_file.load() if spec is None else spec
    if found is None:
        return None
    hook = Hook(found)
    sys.meta_path.insert(0, hook)
    hook._patch.start()
    _installed.append(hook)
    for name in hook._wanted - {MAIN}:  # what is __main__ now is running, and may be the command line's own
        if name in sys.modules:
            hook.apply(sys.modules[name])
    return hook


def remove(hook: Hook) -> None:
    """Put everything back."""
    if hook in sys.meta_path:
        sys.meta_path.remove(hook)
    if hook in _installed:
        _installed.remove(hook)
        hook._patch.stop()
    for replaced in reversed(hook.replaced):
        setattr(replaced.holder, replaced.name, replaced.original)
    hook.replaced.clear()


def run(script: str, arguments: Sequence[str], spec: SpecFile | None = None, *, module: bool = False) -> None:
    """Run a script, or a module (`-m name`), as Python would, with what the file declares turned on."""
    if script == "-m" and arguments:
        return run(arguments[0], arguments[1:], spec, module=True)
    if not module and not os.path.isfile(script):
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
    try:
        start = scripts.run_module if module else scripts.run_path
        start(script, arguments, decorators=None if hook is None else hook.decorators)
    finally:
        if hook is not None:
            remove(hook)
