"""Compiled modules.

Owns the module that `anyshape.compile(module)` gives back: torch's own OptimizedModule, so that parameters,
state_dict, hooks, `train()` and `eval()` are the original's, with what anyshape knows of its programs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.eval_frame import OptimizedModule

from anyshape.declaration import Declaration
from anyshape.declaration.place import brief, kind
from anyshape.errors import NotCompilableError, refuse_deepcopy, refuse_pickle
from anyshape.programs import Program, Variant


class CompiledModule(OptimizedModule):
    """A module compiled by anyshape. It is called, trained and saved as the module is."""

    # Set on the instance by `compiled`; never on the original, to which OptimizedModule passes other attributes on.
    _anyshape_engine: Any
    _anyshape_eagerly: type[BaseException]
    _anyshape_again: type[BaseException]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except self._anyshape_again:
            return CompiledModule.__call__(self, *args, **kwargs)
        except self._anyshape_eagerly as told:
            eagerly = told
        return self._run_eagerly(eagerly, args, kwargs)

    def _run_eagerly(self, eagerly: Any, args: Any, kwargs: Any) -> Any:
        result = self._orig_mod(*args, **kwargs)
        eagerly.say()
        return result

    @property
    def declaration(self) -> Declaration:
        door = self._anyshape_engine.door
        return door.declaration if door is not None else Declaration()

    @property
    def copies(self) -> dict[str, int]:
        door = self._anyshape_engine.door
        return dict(door.copies) if door is not None else {}

    @property
    def programs(self) -> tuple[Program, ...]:
        return self._anyshape_engine.views()  # type: ignore[no-any-return]

    @property
    def fallbacks(self) -> dict[str, int]:
        return dict(self._anyshape_engine.fallbacks)

    @property
    def variants(self) -> tuple[Variant, ...]:
        return tuple(v for p in self.programs for v in p.variants)

    def wait(self, timeout: float | None = None) -> bool:
        return bool(self._anyshape_engine.wait(timeout))

    @property
    def _engine(self) -> Any:
        return self._anyshape_engine

    def __reduce__(self) -> Any:
        raise refuse_pickle(type(self._orig_mod).__name__)

    def __deepcopy__(self, memo: Any) -> Any:
        raise refuse_deepcopy(type(self._orig_mod).__name__)


class EnteredModule(CompiledModule):
    """A compiled module with something in front: the door of a declaration, or a frozen module's shortcut."""

    _anyshape_enter: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._anyshape_enter(*args, **kwargs)
        except self._anyshape_eagerly as told:  # from a program that the shortcut went straight to
            eagerly = told
        return self._run_eagerly(eagerly, args, kwargs)


def is_module(value: Any) -> bool:
    return isinstance(value, torch.nn.Module)


def is_compiled(value: Any) -> bool:
    return isinstance(value, CompiledModule)


def check_callable(fn: Any, *, asked_by: str) -> None:
    """Refuse what is neither a function nor a module."""
    check_no_class(fn, asked_by=asked_by)
    if not callable(fn):
        raise NotCompilableError(
            f"anyshape.{asked_by} takes a function or a module, not {type(fn).__name__}",
            value=in_brief(fn),
            fix=f"f = anyshape.{asked_by}(fn)",
        )


def check_no_class(fn: Any, *, asked_by: str) -> None:
    """Refuse a class of modules: calling it makes a module, which nobody means to compile."""
    asked = f"anyshape.{asked_by}"
    if isinstance(fn, type) and issubclass(fn, torch.nn.Module):
        raise NotCompilableError(
            f"{asked} takes a module, and this is the class of one: it has no parameters yet",
            value=repr(fn)[:80],
            fix=f"f = {asked}({fn.__name__}(...))",
        )


def check_call(args: Any, kwargs: Any, *, asked_by: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of an example call; one that is no tuple is refused rather than taken apart."""
    if not isinstance(args, (tuple, list)):
        raise NotCompilableError(
            f"args is a tuple of the arguments of a call, and this is {kind(args)}",
            where=f"anyshape.{asked_by}(fn, args)",
            value=in_brief(args),
            fix=f"anyshape.{asked_by}(fn, (x,))",
            code="AS007",
        )
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise NotCompilableError(
            f"kwargs is a dict of the keyword arguments of a call, and this is {kind(kwargs)}",
            where=f"anyshape.{asked_by}(fn, args, kwargs)",
            value=in_brief(kwargs),
            fix=f'anyshape.{asked_by}(fn, (x,), {{"mask": mask}})',
            code="AS007",
        )
    return tuple(args), dict(kwargs or {})


def in_brief(value: Any) -> str:
    """A value on one line; of a tensor, what it is rather than what is in it."""
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, torch.Tensor) else brief(value)


def compiled(target: Any, engine: Any, in_front: Sequence[Callable[..., Any]]) -> CompiledModule:
    """torch's OptimizedModule as a CompiledModule, with what is to stand before its calls."""
    from anyshape.engine import RunAgain, RunEagerly

    if not isinstance(target, OptimizedModule):  # TORCHDYNAMO_DISABLE and disable=True give the module itself
        return target  # type: ignore[no-any-return]
    target.__class__ = EnteredModule if in_front else CompiledModule
    call = functools.partial(CompiledModule.__call__, target)
    for around in in_front:
        call = around(call)
    own = {"_enter": call, "_engine": engine, "_eagerly": RunEagerly, "_again": RunAgain}
    for name, value in own.items():
        object.__setattr__(target, f"_anyshape{name}", value)
    return target  # type: ignore[return-value]
