"""The fast path of a call: to compiled code by its key, past Dynamo's frame evaluation.

Owns the way from a call to the compiled code of its frame without Dynamo's frame evaluation: which code it is is
remembered by the sizes of the arguments, its guards are asked as Dynamo asks them, and the code is called as a
function. For a callable whose modules and globals were promised not to change (`frozen`) the guards are asked once for
each key, and the arguments are all that is looked at afterwards.
"""

from __future__ import annotations

import functools
import inspect
import math
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch._dynamo.eval_frame as eval_frame
import torch._dynamo.external_utils as external_utils
import torch.nn.modules.module as nn_module
from torch._C import _get_tracing_state, _len_torch_dispatch_stack
from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list, get_eval_frame_callback
from torch._dynamo.eval_frame import OptimizedModule

from anyshape.foundation import interrupts, limits

MOST_BY_KEY = 8  # arguments up to which Python tells calls apart sooner than guards do
MOST_WAYS = 4  # codes that are asked for one key: those between which a mode or a global chooses
MOST_RECENT = 8  # codes whose guards are asked before Dynamo is
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_NUMBERS = (int, float, bool, str, bytes, type(None), torch.dtype, torch.device)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = tuple(f"_global{name}" for name in _HOOKS)


def first_frame(target: Any) -> tuple[types.FunctionType, Any] | None:
    """The function that a call of what `capture_scope.install` gave back begins with, and its `self`, if known."""
    wrapper = torchs_wrapper(target)
    if wrapper is not None:
        return wrapper, None
    function = target
    if isinstance(target, OptimizedModule):
        module = target._orig_mod
        if module._forward_pre_hooks or nn_module._global_forward_pre_hooks:
            return None
        function = module.forward
    function = getattr(function, "_torchdynamo_orig_callable", function)
    if isinstance(function, types.MethodType) and isinstance(function.__func__, types.FunctionType):
        return function.__func__, function.__self__
    return (function, None) if isinstance(function, types.FunctionType) else None


def torchs_wrapper(target: Any) -> types.FunctionType | None:
    """The function that torch puts around what it would not look into otherwise; None for others."""
    forward = target.forward if isinstance(target, OptimizedModule) else target
    wrapped = getattr(forward, "_torchdynamo_orig_callable", None)
    own = isinstance(wrapped, types.FunctionType) and wrapped.__code__.co_filename == external_utils.__file__
    return wrapped if own else None


class Shortcut:
    """The compiled codes of a callable by the key of a call."""

    def __init__(
        self,
        function: types.FunctionType,
        owner: Any,
        serves: Callable[..., bool],
        modules: Sequence[torch.nn.Module],
        *,
        frozen: bool,
    ) -> None:
        self._function = function
        self._owner = owner  # `self` of a method
        self._serves = serves  # whether a code is a whole call and may be gone to without more ado
        self._modules = modules  # whose hooks run outside the code
        self._frozen = frozen
        self._code = function.__code__
        self._most_keys = limits.keys()
        self._forwards = _forwards(modules)
        self._names = _names_function(function, owner)
        self._keys: dict[tuple[Any, ...], Callable[[Sequence[Any], Mapping[str, Any]], Any]] = {}
        self._known: dict[Any, tuple[Way, ...]] = {}
        self._unknown: set[Any] = set()  # keys that no program serves alone
        self._recent: list[Way] = []  # where guards are asked, no key is: the codes, the one that served last first

    @classmethod
    def to(
        cls, target: Any, start: tuple[types.FunctionType, Any], serves: Callable[..., bool], *, frozen: bool
    ) -> Shortcut:
        """For what `capture_scope.install` gave back, a call of which begins with `start`."""
        modules = (target, target._orig_mod) if isinstance(target, OptimizedModule) else ()
        return cls(*start, serves, modules, frozen=frozen)

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, taken only where the way is not known yet."""

        @functools.wraps(call, updated=())
        def shortened(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_dynamo_compiling() or not self._is_plain():
                return call(*args, **kwargs)
            run = self.find(args, kwargs)
            if run is not None:
                return run(*args, **kwargs)
            result = call(*args, **kwargs)
            self._learn(args, kwargs)
            return result

        return shortened

    def _is_plain(self) -> bool:
        """Whether Dynamo would do nothing but ask the guards."""
        if eval_frame._stance.stance != "default" or get_eval_frame_callback() is not None:
            return False
        if _len_torch_dispatch_stack() or _get_tracing_state() is not None:
            return False
        if self._function.__code__ is not self._code:
            return False  # reloaded in place, as notebooks do
        if self._frozen or not self._modules:
            return True
        if _forwards(self._modules) != self._forwards:
            return False
        hooks = [module.__dict__[name] for module in self._modules for name in _HOOKS]
        return not any(hooks) and not any(getattr(nn_module, name) for name in _GLOBAL_HOOKS)

    def find(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any] | None:
        """What serves a call; None if that is not known."""
        names = None
        if not self._is_by_key(args, kwargs):
            try:
                names = self._names(*args, **kwargs)
            except TypeError:
                return None  # arguments that do not fit: Python says so better
            return self._guarded(names)
        for way in self._known.get(self._key(args, kwargs), ()):
            code = way.code(names)
            if code is not None:
                return code
        return None

    def _guarded(self, names: Mapping[str, Any]) -> Callable[..., Any] | None:
        """The code whose guards hold, if it is one of those that served lately."""
        for place, way in enumerate(self._recent):
            code = way.code(names)
            if code is not None:
                if place:
                    self._recent = [way, *(other for other in self._recent if other is not way)]
                return code
        return None

    def _is_by_key(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether the arguments are all that is looked at."""
        return self._frozen and len(args) + len(kwargs) <= MOST_BY_KEY

    def _key(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        form = tuple(map(type, args))
        if kwargs:
            form += (*kwargs, *map(type, kwargs.values()))
        make = self._keys.get(form)
        if make is None:
            whole = self._is_by_key(args, kwargs)
            make = self._keys[form] = _key_function(form, args, kwargs, whole=whole)
        key = make(args, kwargs)
        if self._frozen and self._modules and key is not None and self._is_by_key(args, kwargs):
            return key, self._modules[1].training
        return key

    def _learn(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """After a call by way of Dynamo: remember what served it."""
        by_key = self._is_by_key(args, kwargs)
        key = self._key(args, kwargs)
        if key is None or key in self._unknown:
            return
        if len(self._known) + len(self._unknown) >= self._most_keys:
            self._known.clear()
            self._unknown.clear()
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
        if by_key and len({id(t) for t in tensors}) != len(tensors):
            return  # a program may have been made for one tensor in two places
        names = self._names(*args, **kwargs)
        for entry in _debug_get_cache_entry_list(self._function.__code__):
            if self._serves(entry.code, guarded=not by_key) and entry.guard_manager.check(names):
                way = Way(entry.guard_manager, entry.code, self._function, self._owner)
                others = self._known.get(key, ()) if by_key else self._recent
                ways = [way, *(other for other in others if other.leads_elsewhere(entry.code))]
                if by_key:
                    self._known[key] = tuple(ways[:MOST_WAYS])
                else:
                    self._recent = ways[:MOST_RECENT]
                return
        self._unknown.add(key)


def _forwards(modules: Sequence[torch.nn.Module]) -> list[Any]:
    """What a call of the modules leads to. Some libraries put a function of their own there."""
    return [(module.__dict__.get("forward"), type(module).forward) for module in modules]


class Way:
    """A compiled code and the guards under which it is the right one. Both are Dynamo's to let go of."""

    def __init__(self, guards: Any, code: types.CodeType, function: types.FunctionType, owner: Any) -> None:
        self._guards, self._code = weakref.ref(guards), weakref.ref(code)
        self._function, self._owner = function, owner

    def leads_elsewhere(self, code: types.CodeType) -> bool:
        return self._code() not in (None, code)

    def code(self, names: Mapping[str, Any] | None = None) -> Callable[..., Any] | None:
        """The code as a function; None where it is gone, or its guards do not hold of these names."""
        guards, code = self._guards(), self._code()
        # Without an entry in Dynamo's cache, something that the code was made for is gone.
        if guards is None or code is None or guards.cache_entry is None:
            return None
        if names is not None and not guards.root.check(names):
            interrupts.deliver()
            return None
        function = self._function
        made = types.FunctionType(code, function.__globals__, code.co_name, function.__defaults__, function.__closure__)
        if function.__kwdefaults__:
            made.__kwdefaults__ = function.__kwdefaults__
        return made if self._owner is None else types.MethodType(made, self._owner)


def _names_function(function: types.FunctionType, owner: Any) -> Callable[..., dict[str, Any]]:
    """A function of the arguments of a call: the names of the frame it begins, as guards are asked about them."""
    signature = inspect.signature(function, follow_wrapped=False)
    plain = signature.replace(
        parameters=[p.replace(annotation=p.empty) for p in signature.parameters.values()],
        return_annotation=inspect.Signature.empty,
    )
    defaults = {f"_default_{n}": p.default for n, p in plain.parameters.items() if p.default is not p.empty}
    text = str(
        plain.replace(
            parameters=[
                p if p.default is p.empty else p.replace(default=_Text(f"_default_{n}"))
                for n, p in plain.parameters.items()
            ]
        )
    )
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    pairs = [f"{n!r}: {n}" for n in plain.parameters]
    pairs += [f"{n!r}: _cell_{i}.cell_contents" for i, n in enumerate(cells)]
    scope = {**defaults, **{f"_cell_{i}": c for i, c in enumerate(cells.values())}}
    exec(f"def names{text}:\n    return {{{', '.join(pairs)}}}", scope)
    names: Callable[..., dict[str, Any]] = scope["names"]
    return names if owner is None else types.MethodType(names, owner)


class _Text(str):
    """A default that is written as the name it goes by."""

    def __repr__(self) -> str:
        return str(self)


def _key_function(
    form: tuple[Any, ...], args: Sequence[Any], kwargs: Mapping[str, Any], *, whole: bool
) -> Callable[..., Any]:
    """What tells calls of this form apart: sizes and numbers, or as a `whole` all that a program can rely on.

    None for a form with something else than tensors and numbers in it, where it has to be the whole.
    """
    parts = ["grad(), inference(), autocast()"] if whole else []
    places = [(f"a[{i}]", v) for i, v in enumerate(args)] + [(f"k[{n!r}]", v) for n, v in kwargs.items()]
    for place, value in places:
        if type(value) in _TENSORS:
            if whole and value.layout is not torch.strided:
                return lambda a, k: None
            more = f", {place}.stride(), {place}.dtype, {place}.device, {place}.requires_grad" if whole else ""
            parts.append(f"{place}.shape{more}")
        elif type(value) in _NUMBERS:
            sign = f", sign(1.0, {place})" if whole and type(value) is float else ""  # 0.0 is equal to -0.0
            parts.append(f"{place}{sign}")
        elif whole:
            return lambda a, k: None
    scope = {
        "grad": torch.is_grad_enabled,
        "inference": torch.is_inference_mode_enabled,
        "autocast": torch._C._is_any_autocast_enabled,
        "sign": math.copysign,
    }
    exec(f"def key(a, k):\n    return (form, {', '.join(parts)})", names := {**scope, "form": form})
    return names["key"]  # type: ignore[return-value]
