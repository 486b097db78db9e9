"""Libraries that keep a list of backends of torch.compile (accelerate, transformers), on which `anyshape` gets.

Owns how `anyshape` gets on those lists. accelerate has an enum, `DynamoBackend`, by which its `dynamo_backend=` and so
transformers' `torch_compile_backend=` are read; it can go when accelerate asks torch which backends there are.
A library is not imported for this: it is seen when the program imports it. Knows nothing of torch.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

NAME = "anyshape"
_ENUM = "accelerate.utils.dataclasses"


class _Finder(importlib.abc.MetaPathFinder):
    """Looks at one module when it has been imported, and is gone."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _ENUM:
            return None
        sys.meta_path.remove(self)
        found = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if found is not None and found.loader is not None:
            found.loader.exec_module = functools.partial(_execute, found.loader.exec_module)  # type: ignore[method-assign]
        return found


def _execute(execute: Callable[[types.ModuleType], None], module: types.ModuleType) -> None:
    execute(module)
    _add_to(module)


def _add_to(module: types.ModuleType) -> None:
    """`DynamoBackend("ANYSHAPE")` is one of its members from here on; nothing else about the enum changes."""
    enum: Any = getattr(module, "DynamoBackend", None)
    if enum is None or NAME.upper() in enum.__members__:
        return
    member = str.__new__(enum, NAME.upper())
    member._name_ = member._value_ = NAME.upper()
    before = enum._missing_

    def missing(cls: Any, value: object) -> Any:
        return member if value == NAME.upper() else before(value)

    enum._missing_ = classmethod(missing)


def make_known() -> None:
    """Have `anyshape` taken for a backend by the libraries that this process imports, or has imported."""
    if _ENUM in sys.modules:
        _add_to(sys.modules[_ENUM])
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
