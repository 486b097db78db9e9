"""Compiled modules: torch's OptimizedModule with programs, fallbacks and entry checks.

Owns the module that `anyshape.compile(module)` gives back: torch's own OptimizedModule, so that parameters,
state_dict, hooks, `train()` and `eval()` are the original's, with what anyshape knows of its programs.
"""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.eval_frame import OptimizedModule

from anyshape.declaration import Declaration
from anyshape.declaration.place import brief, kind
from anyshape.errors import NotCompilableError
from anyshape.programs import Program, Variant


class CompiledModule(OptimizedModule):
    """A module compiled by anyshape. It is called, trained and saved as the module is."""

    # Set on the instance by `compiled`; never on the original, to which OptimizedModule passes other attributes on.
    _anyshape_engine: Any
    _anyshape_caller: object
    _anyshape_eagerly: type[BaseException]
    _anyshape_anew: Callable[[torch.nn.Module], CompiledModule]  # compiles a copy as this one was

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return super().__call__(*args, **kwargs)
        callers = self._anyshape_engine.callers
        before, seen = callers.enter(self._anyshape_caller), callers.here.seen
        callers.here.broken, callers.here.seen = None, False
        try:
            result = super().__call__(*args, **kwargs)
            if callers.here.broken is not None:
                self._anyshape_engine.settle()
            elif not callers.here.seen:
                self._anyshape_engine.passed_over()
            return result
        finally:
            callers.leave(before)
            callers.here.seen |= seen

    def _run_eagerly(self, eagerly: Any, args: Any, kwargs: Any) -> Any:
        result = self._orig_mod(*args, **kwargs)
        eagerly.say()
        return result

    def __getattr__(self, name: str) -> Any:
        """An attribute of the module inside; a method of its own may call that module, past what is compiled."""
        value = super().__getattr__(name)
        if isinstance(value, types.MethodType) and not torch.compiler.is_dynamo_compiling() and _is_own(self, value):
            return types.MethodType(_counting(value.__func__, self._anyshape_engine, name), value.__self__)
        return value

    @property
    def declaration(self) -> Declaration:
        entry_check = self._anyshape_engine.entry_check
        return entry_check.declaration if entry_check is not None else Declaration()

    @property
    def declared_in(self) -> str | None:
        entry_check = self._anyshape_engine.entry_check
        return entry_check.declared_in if entry_check is not None else None

    @property
    def copies(self) -> dict[str, int]:
        entry_check = self._anyshape_engine.entry_check
        return dict(entry_check.copies) if entry_check is not None else {}

    @property
    def programs(self) -> tuple[Program, ...]:
        return self._anyshape_engine.views(self._anyshape_caller)  # type: ignore[no-any-return]

    @property
    def fallbacks(self) -> dict[str, int]:
        return dict(self._anyshape_engine.fallbacks_of(self._anyshape_caller))

    @property
    def variants(self) -> tuple[Variant, ...]:
        return tuple(v for p in self.programs for v in p.variants)

    def wait(self, timeout: float | None = None) -> bool:
        return bool(self._anyshape_engine.wait(timeout))

    @property
    def _engine(self) -> Any:
        return self._anyshape_engine

    def __reduce__(self) -> Any:
        """A copy is compiled anew, in the same way: programs are machine code of this process."""
        return _copied, (self._anyshape_anew, self._orig_mod, _own_hooks(self))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__reduce__()

    def __deepcopy__(self, memo: Any) -> Any:
        twin = self._anyshape_anew(copy.deepcopy(self._orig_mod, memo))
        memo[id(self)] = twin
        return _with_hooks(twin, copy.deepcopy(_own_hooks(self), memo))


def _is_own(compiled: CompiledModule, method: types.MethodType) -> bool:
    """Whether a method is one of the module inside that its author wrote, and its calls are not compiled in place."""
    inside = compiled.__dict__.get("_modules", {}).get("_orig_mod")
    written = not str(getattr(method.__func__, "__module__", "")).startswith("torch.")
    return method.__self__ is inside and written and inside._compiled_call_impl is None


def _counting(method: Callable[..., Any], engine: Any, name: str) -> Callable[..., Any]:
    """A method, by which calls of its module are counted: they run eagerly."""

    @functools.wraps(method)
    def call(module: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        reason = f"{name}() calls the module inside, which is not compiled: anyshape.compile(module, in_place=True) is"
        handle = module.register_forward_pre_hook(lambda *_: engine.count_eager(reason))
        try:
            return method(module, *args, **kwargs)
        finally:
            handle.remove()

    return call


# Those of the compiled module itself; the others belong to the module inside.
_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_always_called",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)


def _own_hooks(module: CompiledModule) -> dict[str, Any]:
    return {name: module.__dict__[name] for name in _HOOKS if module.__dict__.get(name)}


def _with_hooks(module: Any, hooks: dict[str, Any]) -> Any:
    module.__dict__.update(hooks)
    return module


def _copied(anew: Callable[[torch.nn.Module], Any], module: torch.nn.Module, hooks: dict[str, Any]) -> Any:
    """What a pickle of a compiled module is loaded by."""
    return _with_hooks(anew(module), hooks)


class EnteredModule(CompiledModule):
    """A compiled module with something in front: the entry check of a declaration, or a frozen module's shortcut."""

    _anyshape_enter: Callable[..., Any]

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._anyshape_enter(*args, **kwargs)
        except self._anyshape_eagerly as told:  # from a program that the shortcut went straight to
            eagerly = told
        return self._run_eagerly(eagerly, args, kwargs)


def is_module(value: Any) -> bool:
    return isinstance(value, torch.nn.Module)


def module_of(fn: Any) -> Any:
    """The module that is compiled, by itself or by its calls (in place); None for other functions."""
    if is_module(fn):
        return fn
    owner = getattr(fn, "__self__", None)
    in_place = is_module(owner) and getattr(fn, "__func__", None) is torch.nn.Module._call_impl
    return owner if in_place else None


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


def begun_again(target: Any) -> Any:
    """`target`, whose forward begins again where anyshape says so: what runs around it, such as hooks, runs once."""
    from anyshape.foundation.reruns import RunAgain, RunEagerly

    if not isinstance(target, OptimizedModule):
        return target
    inside, module = target.forward, target._orig_mod

    @functools.wraps(inside)
    def forward(*args: Any, **kwargs: Any) -> Any:
        try:
            return inside(*args, **kwargs)
        except RunAgain:
            return forward(*args, **kwargs)
        except RunEagerly as told:
            eagerly = told
        # Out here, where an error of the module is its own and nothing else is being handled.
        result = module(*args, **kwargs)
        eagerly.say()
        return result

    target.forward = forward
    return target


def compiled(
    target: Any, engine: Any, in_front: Sequence[Callable[..., Any]], *, anew: Callable[..., Any]
) -> CompiledModule:
    """torch's OptimizedModule as a CompiledModule, with what is to stand before its calls.

    `anew` compiles a copy of the module in the same way.
    """
    from anyshape.foundation.reruns import RunEagerly

    if not isinstance(target, OptimizedModule):  # TORCHDYNAMO_DISABLE and disable=True give the module itself
        return target  # type: ignore[no-any-return]
    target.__class__ = EnteredModule if in_front else CompiledModule
    call = functools.partial(CompiledModule.__call__, target)
    for around in in_front:
        call = around(call)
    caller = engine.callers.join(engine.programs)
    own = {
        "_caller": caller,
        "_enter": call,
        "_engine": engine,
        "_eagerly": RunEagerly,
        "_anew": anew,
    }
    for name, value in own.items():
        object.__setattr__(target, f"_anyshape{name}", value)
    return target  # type: ignore[return-value]
