"""Layers of one class (regional compilation): which modules share an engine and its programs.

Owns which compiled modules have an engine in common: those whose calls begin with the same code and that are compiled
in the same way, in place or not, while they are alive. A module that is compiled a second time has an engine of its
own.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from anyshape._torch.runtime import compiled_modules
from anyshape.engine.engine import Engine


class _Region:
    """An engine and the modules that are called through it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = weakref.ref(engine)
        self.members: weakref.WeakSet[Any] = weakref.WeakSet()


_regions: dict[Any, _Region] = {}


def engine_for(fn: Any, given: Mapping[str, Any], new: Callable[[], Engine]) -> Engine:
    """The engine of the other modules of this class that were compiled like it; a new one where there are none."""
    module = compiled_modules.module_of(fn)
    key = _key(module, fn, given) if module is not None else None
    if key is None:
        return new()
    for gone in [k for k, region in _regions.items() if not region.members]:
        del _regions[gone]
    region = _regions.get(key)
    engine = region.engine() if region is not None else None
    if region is None or engine is None or any(module is member for member in region.members):
        engine = new()
        region = _regions[key] = _Region(engine)
    region.members.add(module)
    return engine


def _key(module: Any, fn: Any, given: Mapping[str, Any]) -> Any:
    """What modules have in common that share programs; None for what cannot be told."""
    forward = getattr(module.forward, "__func__", None)
    if not isinstance(forward, types.FunctionType):  # a forward of this instance alone
        return None
    options = given["options"]
    settled = tuple(sorted((k, repr(v)) for k, v in options.items())) if options else None
    rest = tuple((k, v) for k, v in given.items() if k != "options")
    try:
        key = (type(module), module is fn, forward.__code__, settled, rest)
        hash(key)
    except TypeError:
        return None
    return key
