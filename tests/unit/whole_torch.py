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
from unittest import mock

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
            self.tables["a patched table", str(i)] = (table, dict(table))
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
        found = [
            f"{name}.{key}"
            for (name, key), (owner, value) in self.seen.items()
            if vars(owner).get(key, _MISSING) is not value
        ]
        for name, owner in self.owners.items():  # what was not there, and hides what a class inherits
            if isinstance(owner, type):
                found += [
                    f"{name}.{key}"
                    for key, value in list(vars(owner).items())
                    if _may_be_swapped(owner, value) and (name, key) not in self.seen
                ]
        for (name, key), (table, before) in self.tables.items():
            now = dict(table) if isinstance(table, dict) else dict(enumerate(table))
            differing = [k for k in {**before, **now} if before.get(k) is not now.get(k)]
            new = lambda k: callable(now[k]) and (isinstance(k, str) or callable(k))  # else a memo that was filled
            found += [f"{name}.{key}[{k}]" for k in differing if k in before or new(k)]
        for name, config in _configs():
            before, after = self.settings.get(name, {}), config.get_config_copy()
            found += [f"{name}.{key}" for key, value in before.items() if after.get(key) != value]
        found += [f"os.environ[{k}]" for k, v in self.environment.items() if os.environ.get(k) != v]
        return sorted(set(found))


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


def name_of(target: Any) -> str:
    return target.__name__ if isinstance(target, types.ModuleType) else f"{target.__module__}.{target.__qualname__}"


class Undone:
    """Records every patch of torch that is made inside, and with `kept` leaves it in place until the end."""

    def __init__(self, *, kept: bool) -> None:
        self.kept, self.names, self.tables = kept, set[str](), []  # type: ignore[var-annotated]
        self._order: list[tuple[Any, Any]] = []
        self._began: dict[int, int] = {}
        self._held: list[Any] = []  # so that ids stay theirs

    def __enter__(self) -> Undone:
        attribute, table = mock._patch, mock._patch_dict  # type: ignore[attr-defined]
        self._stock = [(k, k.__enter__, k.__exit__) for k in (attribute, table)]
        for kind, enter, leave in self._stock:
            kind.__enter__, kind.__exit__ = self._entered(enter), self._left(leave)
        return self

    def undo(self) -> None:
        """Put back what was left in place, the last one first."""
        for patch, leave in sorted(self._order, key=lambda made: -self._began[id(made[0])]):
            leave(patch, None, None, None)
        self._order.clear()

    def _entered(self, enter: Any) -> Any:
        def entered(patch: Any) -> Any:
            result = enter(patch)
            self._began[id(patch)] = len(self._began)
            self._held.append(patch)
            if hasattr(patch, "target"):
                if _is_torchs(patch.target):
                    self.names.add(f"{name_of(patch.target)}.{patch.attribute}")
            elif patch.in_dict is not os.environ:
                self.tables.append(patch.in_dict)
            return result

        return entered

    def _left(self, leave: Any) -> Any:
        def left(patch: Any, *error: Any) -> Any:
            if self.kept and (_is_torchs(patch.target) if hasattr(patch, "target") else False):
                self._order.append((patch, leave))
                return None
            return leave(patch, *error)

        return left

    def __exit__(self, *error: Any) -> None:
        for kind, enter, leave in self._stock:
            kind.__enter__, kind.__exit__ = enter, leave


def _is_torchs(target: Any) -> bool:
    if not isinstance(target, (type, types.ModuleType)):
        return False
    return name_of(target).startswith("torch")
