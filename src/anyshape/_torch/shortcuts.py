"""Calls that go straight to their program.

Owns the way around Dynamo's guards for a callable whose modules and globals were promised not to change: what is left
to look at are the arguments. The compiled code of a frame is called as a function; which one is asked of the guards
themselves, once for each key.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch._dynamo.eval_frame as eval_frame
import torch._dynamo.external_utils as external_utils
from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list
from torch._dynamo.eval_frame import OptimizedModule

MOST_KEYS = 100_000
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_NUMBERS = (int, float, bool, str, bytes, type(None), torch.dtype, torch.device)


def torchs_wrapper(target: Any) -> types.FunctionType | None:
    """The function that torch puts around a module whose `forward` it would not look into; None for others."""
    wrapped = getattr(getattr(target, "forward", None), "_torchdynamo_orig_callable", None)
    own = isinstance(wrapped, types.FunctionType) and wrapped.__code__.co_filename == external_utils.__file__
    return wrapped if own else None


class Shortcut:
    """The compiled codes of a callable by the key of a call."""

    def __init__(
        self,
        function: Callable[..., Any],
        owner: Any,
        serves: Callable[[types.CodeType], bool],
        module: torch.nn.Module | None = None,
    ) -> None:
        self._function = function
        self._owner = owner  # `self` of a method
        self._module = module  # whose `training` is looked at all the same
        self._serves = serves  # whether a code is a whole call and may be gone to without more ado
        self._keys: dict[tuple[Any, ...], Callable[[Sequence[Any], Mapping[str, Any]], Any]] = {}
        self._known: dict[Any, Callable[..., Any]] = {}
        self._unknown: set[Any] = set()  # keys that no program serves alone

    @classmethod
    def to(cls, target: Any, serves: Callable[[types.CodeType], bool]) -> Shortcut | None:
        """For what `capture.install` gave back; None where a call is more than one frame."""
        if isinstance(target, OptimizedModule):
            module = target._orig_mod
            wrapper = torchs_wrapper(target)
            if wrapper is not None:
                return cls(wrapper, None, serves, module)
            hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
            forward = module.forward
            if any(hooks) or not isinstance(forward, types.MethodType) or forward.__self__ is not module:
                return None
            return cls(forward.__func__, module, serves, module)
        function = inspect.unwrap(getattr(target, "_torchdynamo_orig_callable", target))
        if isinstance(function, types.MethodType):
            return cls(function.__func__, function.__self__, serves)
        return cls(function, None, serves) if isinstance(function, types.FunctionType) else None

    def find(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Callable[..., Any] | None]:
        """The key of a call, None if it has none, and what serves it, None if that is not known."""
        form = (*map(type, args), *kwargs, *map(type, kwargs.values()))
        make = self._keys.get(form)
        if make is None:
            make = self._keys[form] = _key_function(form, args, kwargs)
        key = make(args, kwargs)
        if key is None or eval_frame._stance.stance != "default":
            return None, None
        if self._module is not None:
            key = (key, self._module.training)
        return key, self._known.get(key)

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, taken only where the way is not known yet."""

        @functools.wraps(call, updated=())
        def shortened(*args: Any, **kwargs: Any) -> Any:
            key, run = self.find(args, kwargs)
            if run is not None:
                return run(*args, **kwargs)
            result = call(*args, **kwargs)
            if key is not None:
                self.learn(key, args, kwargs)
            return result

        return shortened

    def learn(self, key: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """After a call by way of the guards: remember what served it."""
        if key in self._unknown:
            return
        if len(self._known) + len(self._unknown) >= MOST_KEYS:
            self._known.clear()
            self._unknown.clear()
        given = args if self._owner is None else (self._owner, *args)
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
        if len({id(t) for t in tensors}) != len(tensors):
            return  # a program may have been made for one tensor in two places
        function = self._function
        bound = inspect.signature(function).bind(*given, **kwargs)
        bound.apply_defaults()
        inside = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        names = {**bound.arguments, **{name: cell.cell_contents for name, cell in inside.items()}}
        for entry in _debug_get_cache_entry_list(function.__code__):
            if self._serves(entry.code) and entry.guard_manager.check(names):
                made = types.FunctionType(
                    entry.code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
                )
                made.__kwdefaults__ = function.__kwdefaults__
                self._known[key] = made if self._owner is None else types.MethodType(made, self._owner)
                return
        self._unknown.add(key)


def _key_function(form: tuple[Any, ...], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
    """What tells calls of this form apart; None for a form with something else than tensors and numbers in it."""
    parts = ["grad(), inference(), autocast()"]
    places = [(f"a[{i}]", v) for i, v in enumerate(args)] + [(f"k[{n!r}]", v) for n, v in kwargs.items()]
    for place, value in places:
        if type(value) in _TENSORS:
            if value.layout is not torch.strided:
                return lambda a, k: None
            parts.append(f"{place}.shape, {place}.stride(), {place}.dtype, {place}.device, {place}.requires_grad")
        elif type(value) in _NUMBERS:
            parts.append(f"{place}")
        else:
            return lambda a, k: None
    scope = {
        "grad": torch.is_grad_enabled,
        "inference": torch.is_inference_mode_enabled,
        "autocast": torch._C._is_any_autocast_enabled,
    }
    exec(f"def key(a, k):\n    return (form, {', '.join(parts)})", names := {**scope, "form": form})
    return names["key"]  # type: ignore[return-value]
