"""Dynamo's bytecode of a captured frame as bytes, with names resolved again on loading.

Owns Dynamo's bytecode as bytes: what takes the arguments apart, calls the compiled graph and puts the result together.
The names that it looks up are written down with how they are found again; what cannot be found again is refused.
"""

from __future__ import annotations

import dataclasses
import dis
import importlib
import inspect
import marshal
import pickle
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from anyshape.errors import ArtifactError, refuse_precompile

_COMPILED = "__compiled_fn"
_PLAIN = (int, float, bool, str, bytes, type(None), complex)


@dataclasses.dataclass(frozen=True)
class Frame:
    """Code, the names it looks up, and the defaults of the function that it stands for."""

    code: bytes
    names: Mapping[str, tuple[str, Any]]  # (compiled | module | live | pickled, how)
    defaults: bytes
    wrapped: str  # torch's own function around a module of torch's own: around the module, or around its call
    constants: Mapping[int, bytes]  # of the code, those that are no plain values

    @classmethod
    def of(cls, code: types.CodeType, function: types.FunctionType) -> Frame:
        """What `function` became. `code` is what Dynamo made of it."""
        compiled = sorted(n for n in _names(code) if n.startswith(_COMPILED))
        renamed = {name: f"{_COMPILED}_{i}" for i, name in enumerate(compiled)}
        names = {renamed.get(n, n): _found_again(n, function) for n in sorted(_names(code))}
        try:
            defaults = pickle.dumps((function.__defaults__, function.__kwdefaults__))
        except Exception as error:
            raise refuse_precompile("a default of the function cannot be written to a file", str(error)) from error
        code, constants = _without_objects(_renamed(code, renamed))
        return cls(marshal.dumps(code), names, defaults, _wrapped(function), constants)

    def function(self, compiled: Callable[..., Any], live: Any, name: str) -> types.FunctionType:
        """The function again, with a compiled graph in its place. `live` is the callable that it was made from."""
        code = marshal.loads(self.code)
        objects = {i: pickle.loads(data) for i, data in self.constants.items()}
        code = code.replace(co_consts=tuple(objects.get(i, c) for i, c in enumerate(code.co_consts)))
        scope = {n: _find(n, kind, how, compiled, live) for n, (kind, how) in self.names.items()}
        closure: tuple[Any, ...] | None = None
        if self.wrapped:
            inner = live if self.wrapped == "module" else live.__call__
            closure = tuple(types.CellType(inner) for _ in code.co_freevars)
        elif code.co_freevars:
            own = plain_function(live)
            if own is None or own.__code__.co_freevars != code.co_freevars:
                raise needs_live(f"the names {', '.join(code.co_freevars)} around the function")
            closure = own.__closure__
        positional, named = pickle.loads(self.defaults)
        made = types.FunctionType(code, scope, name, positional, closure)
        made.__kwdefaults__ = named
        return made


def _wrapped(function: types.FunctionType) -> str:
    from torch._dynamo import external_utils  # here: a process that only serves has no use for it

    if function.__code__.co_filename != external_utils.__file__ or not function.__closure__:
        return ""
    return "module" if isinstance(function.__closure__[0].cell_contents, torch.nn.Module) else "call"


def plain_function(value: Any) -> types.FunctionType | None:
    """The Python function behind a function or a method."""
    value = inspect.unwrap(value) if callable(value) else value
    value = getattr(value, "__func__", value)
    return value if isinstance(value, types.FunctionType) else None


def fetcher(sources: Sequence[str]) -> Callable[[Mapping[str, Any], Mapping[str, Any]], tuple[Any, ...]]:
    """A function of the locals and globals of a call that gives the values at these sources."""
    scope: dict[str, Any] = {}
    try:
        exec(f"def fetch(L, G):\n    return ({''.join(s + ', ' for s in sources)})", scope)
    except SyntaxError as error:
        raise refuse_precompile("an input of the graph cannot be reached from the arguments", str(sources)) from error
    return scope["fetch"]  # type: ignore[no-any-return]


def _names(code: types.CodeType) -> Iterator[str]:
    """The globals that code looks up, also code inside it."""
    seen: set[str] = set()
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            raise refuse_precompile("it writes to a global", str(instruction.argval))
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            seen.add(str(instruction.argval))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            seen.update(_names(constant))
    yield from seen


def _renamed(code: types.CodeType, names: Mapping[str, str]) -> types.CodeType:
    """The names of compiled graphs carry a number that is another one in each process."""
    return code.replace(
        co_names=tuple(names.get(n, n) for n in code.co_names),
        co_consts=tuple(_renamed(c, names) if isinstance(c, types.CodeType) else c for c in code.co_consts),
    )


def _without_objects(code: types.CodeType) -> tuple[types.CodeType, dict[int, bytes]]:
    """Code and, apart from it, the constants that are no plain values: Dynamo loads classes of results like that."""
    kept, apart = list(code.co_consts), {}
    for i, constant in enumerate(kept):
        try:
            marshal.dumps(constant)
        except ValueError:
            try:
                apart[i] = pickle.dumps(constant)
            except Exception as error:
                raise refuse_precompile("the compiled call needs an object of this process", str(error)) from error
            kept[i] = None
    return code.replace(co_consts=tuple(kept)), apart


def _found_again(name: str, function: types.FunctionType) -> tuple[str, Any]:
    if name.startswith(_COMPILED):
        return "compiled", None
    own = function.__globals__
    if name not in own:
        return "builtin", None
    value = own[name]
    if isinstance(value, types.ModuleType):
        return "module", value.__name__
    if isinstance(value, _PLAIN):
        return "pickled", pickle.dumps(value)
    if name.startswith("__") and not name.endswith("__"):  # put there by Dynamo
        try:
            return "pickled", pickle.dumps(value)
        except Exception as error:
            raise refuse_precompile("the compiled call needs an object of this process", f"{name}: {error}") from error
    return "live", None


def _find(name: str, kind: str, how: Any, compiled: Any, live: Any) -> Any:
    if kind == "compiled":
        return compiled
    if kind == "module":
        return importlib.import_module(how)
    if kind == "pickled":
        return pickle.loads(how)
    if kind == "builtin":
        return getattr(importlib.import_module("builtins"), name)
    own = plain_function(live) or plain_function(getattr(live, "forward", None))
    if own is None or name not in own.__globals__:
        raise needs_live(f"the global {name}")
    return own.__globals__[name]


def needs_live(what: str) -> ArtifactError:
    return ArtifactError(
        f"the artifact uses {what}, which is not inside it",
        value="fn was not given, or is another function",
        fix='anyshape.load("model.any", fn) with the function or module that it was made from',
        code="AS055",
    )
