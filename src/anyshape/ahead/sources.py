"""Digests of what a callable is made of: source, constants, module structure.

Owns the comparison of the callable that a file was made from with the one it is loaded for: the source of its functions
and classes and of those they call by name, plain values around it, and a module's structure, parameters and settings.
"""

from __future__ import annotations

import hashlib
import inspect
import types
from collections.abc import Iterator
from typing import Any

import torch

_PLAIN = (int, float, bool, str, bytes, complex, type(None))
_NOT_OURS = ("torch", "builtins", "anyshape", "numpy", "sympy", "typing", "functools", "math")


def digests(live: Any) -> dict[str, str]:
    """A digest for each part of a callable, by name; the same in every process."""
    found: dict[str, str] = {}
    if isinstance(live, torch.nn.Module):
        found.update(_of_module(live))
        for module in live.modules():
            _add_class(type(module), found)
        return found
    owner = getattr(live, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        found.update(digests(owner))
    function = inspect.unwrap(live)
    function = getattr(function, "__func__", function)
    if isinstance(function, types.FunctionType):
        _add_function(function, found)
        for name, value in inspect.getclosurevars(function).nonlocals.items():
            if isinstance(value, _PLAIN):
                found[f"the value of {name}"] = _digest(repr(value))
            elif isinstance(value, torch.nn.Module):
                found.update({f"{name}: {k}": v for k, v in digests(value).items()})
    return found


def name(live: Any) -> str:
    """What a file calls it: a module by its class."""
    named = type(live) if isinstance(live, torch.nn.Module) else live
    return str(getattr(named, "__qualname__", named))


def identity(live: Any) -> str:
    """One digest for all of it."""
    return _digest(repr(sorted(digests(live).items())))


def _of_module(module: torch.nn.Module) -> Iterator[tuple[str, str]]:
    names = [(n, type(m).__qualname__) for n, m in module.named_modules(remove_duplicate=False)]
    yield "the structure of the module", _digest(repr(names))
    yield "the training flags of its modules", _digest(repr([(n, m.training) for n, m in module.named_modules()]))
    first: dict[int, str] = {}
    tensors = []
    for kind, named in (("parameter", module.named_parameters), ("buffer", module.named_buffers)):
        for name, tensor in named(remove_duplicate=False):
            same = first.setdefault(id(tensor), name)
            facts = (tuple(tensor.shape), tuple(tensor.stride()), str(tensor.dtype), tensor.device.type)
            tensors.append((kind, name, same, *facts, tensor.requires_grad))
    yield "the shapes of its parameters", _digest(repr(tensors))
    settings = []
    for name, inner in module.named_modules():
        plain = {k: v for k, v in vars(inner).items() if _is_plain(v) and not k.startswith("_") and k != "training"}
        settings.append((name, sorted((k, repr(v)) for k, v in plain.items())))
    yield "the settings of its modules", _digest(repr(settings))


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return isinstance(value, (*_PLAIN, torch.dtype))


def _add_class(cls: type, found: dict[str, str]) -> None:
    name = f"class {cls.__qualname__}"
    if name in found or cls.__module__.partition(".")[0] in _NOT_OURS:
        return
    found[name] = _digest(_source(cls))
    for value in vars(cls).values():
        function = getattr(value, "__func__", value)
        if isinstance(function, types.FunctionType):
            _add_called(function, found)


def _add_function(function: types.FunctionType, found: dict[str, str]) -> None:
    name = f"function {function.__qualname__}"
    if name in found or (function.__module__ or "").partition(".")[0] in _NOT_OURS:
        return
    found[name] = _digest(_source(function))
    _add_called(function, found)


def _add_called(function: types.FunctionType, found: dict[str, str]) -> None:
    """Functions and classes that a function reaches by a global name, and plain globals."""
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if isinstance(value, types.FunctionType):
            _add_function(value, found)
        elif isinstance(value, type):
            _add_class(value, found)
        elif isinstance(value, _PLAIN) and name in function.__globals__ and not name.startswith("__"):
            found[f"the global {name}"] = _digest(repr(value))


def _source(value: Any) -> str:
    try:
        return inspect.getsource(value)
    except (OSError, TypeError):  # made by exec, or typed into a shell: its code says as much
        functions = [value] if isinstance(value, types.FunctionType) else list(vars(value).values())
        codes = [f.__code__ for f in functions if isinstance(f, types.FunctionType)]
        return repr([(c.co_name, c.co_code.hex(), c.co_names, repr(_constants(c))) for c in codes])


def _constants(code: types.CodeType) -> list[Any]:
    return [_constants(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
