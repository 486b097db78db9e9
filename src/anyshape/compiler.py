"""`anyshape.compile`.

Owns the callable that people hold: a function or a module that looks like the one it was made from, with `programs` and
`fallbacks`. What a program is and how a call gets one is the engine's.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

from anyshape._torch import capture, modules
from anyshape.engine import Engine, RunAgain, RunEagerly, observers
from anyshape.errors import NotCompilableError, refuse_deepcopy, refuse_pickle
from anyshape.programs import Program

__all__ = ["CompiledFunction", "compile", "observers"]


class CompiledFunction:
    """A function compiled by anyshape. It is called as the function is."""

    def __init__(self, function: Callable[..., Any], target: Callable[..., Any], engine: Engine) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._target = target
        self._engine = engine

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._target(*args, **kwargs)
        except RunAgain:
            return self(*args, **kwargs)
        except RunEagerly as eagerly:
            result = self._function(*args, **kwargs)
            eagerly.say()
            return result

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As a method: `self` is an argument like any other."""
        return self if instance is None else types.MethodType(self, instance)

    @property
    def programs(self) -> tuple[Program, ...]:
        """What was compiled and is alive."""
        return tuple(p.view() for p in self._engine.programs)

    @property
    def fallbacks(self) -> dict[str, int]:
        """How often a call ran eagerly, by reason."""
        return dict(self._engine.fallbacks)

    def __repr__(self) -> str:
        return f"<anyshape-compiled {self._name}>"

    @property
    def _name(self) -> str:
        return str(getattr(self._function, "__qualname__", self._function))

    def __reduce__(self) -> Any:
        raise refuse_pickle(self._name)

    def __deepcopy__(self, memo: Any) -> Any:
        raise refuse_deepcopy(self._name)


def compile(
    fn: Any = None,
    *,
    fullgraph: bool = False,
    backend: Any = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """Compile a function or module once for every size it is called with.

    Drop-in for `torch.compile`; also a decorator, with or without arguments. `backend`, `mode`, `options`,
    `fullgraph` and `disable` are passed on.
    """
    if fn is None:
        return functools.partial(
            compile, fullgraph=fullgraph, backend=backend, mode=mode, options=options, disable=disable
        )
    if isinstance(fn, CompiledFunction) or modules.is_compiled(fn):
        return fn
    if not callable(fn):
        raise NotCompilableError(
            f"anyshape.compile takes a function or a module, not {type(fn).__name__}",
            value=repr(fn)[:80],
            fix="f = anyshape.compile(fn)",
        )
    if mode is not None and options is not None:
        raise NotCompilableError(
            "mode and options cannot both be given, as in torch.compile",
            value=f"mode={mode!r}",
            fix=f"f = anyshape.compile(fn, mode={mode!r})",
            code="AS007",
        )
    engine = Engine(
        capture.inner_backend(backend, mode, options), fullgraph=fullgraph, own_backend=not isinstance(backend, str)
    )
    target = capture.install(fn, engine.compile_graph, fullgraph=fullgraph, capture=engine.capture, disable=disable)
    if modules.is_module(fn):
        engine.starts_at(modules.first_code(target), type(fn).__name__)
        return modules.compiled(target, engine)
    engine.starts_at(getattr(inspect.unwrap(fn), "__code__", None), getattr(fn, "__qualname__", repr(fn)))
    return CompiledFunction(fn, target, engine)
