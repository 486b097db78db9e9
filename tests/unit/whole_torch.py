"""All of torch that a patch could change, as it is now.

Owns the picture that tests compare: every attribute of every module of torch and of every class in one, every entry of
a table of functions, and every setting. Nothing is listed by hand, so a patch of tomorrow is looked at as well.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

_MISSING = object()
_SWAPPED = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, property)
_SWAPPED += (staticmethod, classmethod, types.WrapperDescriptorType, types.MethodType)


class Picture:
    """What torch consists of. It holds what it has seen, so that an id means the same later."""

    def __init__(self, tables: Sequence[dict[Any, Any]] = ()) -> None:
        """`tables` are those that no name of a module leads to."""
        self.seen: dict[tuple[Any, ...], Any] = {}
        self.tables: dict[tuple[Any, ...], Any] = {}
        self.owners: dict[str, Any] = {}
        for name, owner in _owners():
            self.owners[name] = owner
            for key, value in list(vars(owner).items()):
                self._look(name, owner, key, value)
        for i, table in enumerate(tables):
            self.tables["a patched table", str(i)] = (table, _entries(table))
        self.settings = {n: c.get_config_copy() for n, c in _configs()}
        self.environment = dict(os.environ)

    def _look(self, name: str, owner: Any, key: str, value: Any) -> None:
        if _may_be_swapped(owner, value):
            self.seen[name, key] = (owner, value)
        elif isinstance(value, dict) and any(map(callable, [*value, *value.values()])) and not all(map(_is_id, value)):
            self.tables[name, key] = (value, dict(value))
        elif isinstance(value, list) and any(map(callable, value)):
            self.tables[name, key] = (value, dict(enumerate(value)))

    def changed(self) -> list[str]:
        """What is another than when the picture was taken."""
        found = {text for text, _, _ in self.differences()}
        found |= {f"os.environ[{k}]" for k, v in self.environment.items() if os.environ.get(k) != v}
        return sorted(found)

    def differences(self) -> Iterator[tuple[str, Any, Any]]:
        """Each name, entry and setting that is another, with its owner and its name or key there."""
        for (name, key), (owner, value) in self.seen.items():
            if vars(owner).get(key, _MISSING) is not value:
                yield f"{name}.{key}", owner, key
        for name, owner in self.owners.items():  # what was not there, and hides what a class inherits
            if isinstance(owner, type):
                for key, value in list(vars(owner).items()):
                    if _may_be_swapped(owner, value) and (name, key) not in self.seen:
                        yield f"{name}.{key}", owner, key
        for (name, key), (table, before) in self.tables.items():
            now = _entries(table)
            differing = [k for k in {**before, **now} if before.get(k) is not now.get(k)]
            new = lambda k: callable(now[k]) and (isinstance(k, str) or callable(k))  # else a memo that was filled
            yield from ((f"{name}.{key}[{k}]", table, k) for k in differing if k in before or new(k))
        for name, config in _configs():
            before, after = self.settings.get(name, {}), config.get_config_copy()
            yield from ((f"{name}.{key}", config, key) for key, value in before.items() if after.get(key) != value)


def _entries(table: Any) -> dict[Any, Any]:
    return dict(table) if isinstance(table, dict) else dict(enumerate(table))


def _may_be_swapped(owner: Any, value: Any) -> bool:
    """What a patch may be of; a flag only of a class, where it is what its instances are."""
    return isinstance(value, _SWAPPED) or (isinstance(owner, type) and isinstance(value, bool))


def _is_id(key: Any) -> bool:
    """Of a memo by object, which fills itself; a table has names or operators."""
    return isinstance(key, int)


def _owners() -> Iterator[tuple[str, Any]]:
    """Every module of torch and every class that is defined in one."""
    told: set[int] = set()
    for name, module in sorted(sys.modules.items()):
        if not isinstance(module, types.ModuleType) or not (name == "torch" or name.startswith("torch.")):
            continue
        if name.startswith("torch.ops") or id(module) in told:  # it fills itself on use
            continue
        told.add(id(module))
        yield name, module
        for value in list(vars(module).values()):
            if isinstance(value, type) and value.__module__.startswith("torch") and id(value) not in told:
                told.add(id(value))
                yield f"{value.__module__}.{value.__qualname__}", value


def _configs() -> Iterator[tuple[str, Any]]:
    for name, module in sorted(sys.modules.items()):
        if name.startswith("torch.") and isinstance(getattr(module, "get_config_copy", None), types.MethodType):
            yield name, module
