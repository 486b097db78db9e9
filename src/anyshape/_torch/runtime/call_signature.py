"""The signature of a call: everything but free sizes that its program was captured for.

Owns the form of a call: everything about its arguments and about torch's state that a program was captured for and that
is no free size, and the key under which a call is remembered.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from anyshape.assumptions.wording import describe_source

_TENSORS = (torch.Tensor, torch.nn.Parameter)
_PLAIN = (int, float, bool, str, bytes, complex, type(None), torch.dtype, torch.device)


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One argument, or one value inside an argument. A size of None is free."""

    path: str
    type: str
    value: Any = None  # of what is no tensor; None for a free number
    free: bool = False
    dtype: torch.dtype | None = None
    device: torch.device | None = None
    requires_grad: bool = False
    sizes: tuple[int | None, ...] = ()
    strides: tuple[int, ...] | None = None  # None: the admission looks at them


@dataclasses.dataclass(frozen=True)
class Form:
    """A call without its free sizes."""

    leaves: tuple[Leaf, ...]
    trees: tuple[tuple[str, str], ...]  # the containers of each argument
    same: tuple[tuple[str, ...], ...]  # arguments that are one tensor
    state: tuple[Any, ...]
    training: bool | None

    def differs(self, other: Form) -> str | None:
        """What tells a call of another form from this one, in words; None where nothing does."""
        if self.state != other.state:
            names = ("grad mode", "inference mode", "autocast", "the default dtype", "deterministic algorithms")
            for name, ours, theirs in zip(names, self.state, other.state, strict=True):
                if ours != theirs:
                    return f"{name} is {theirs}, and it was made for {ours}"
        if self.training != other.training:
            return f"the module's training is {other.training}, and it was made for {self.training}"
        if self.trees != other.trees:
            return "the arguments are nested in another way"
        for ours, theirs in zip(self.leaves, other.leaves, strict=True):
            difference = _leaf_differs(ours, theirs)
            if difference:
                return f"{describe_source(ours.path)} {difference}"
        return "other arguments are one and the same tensor" if self.same != other.same else None


def _leaf_differs(ours: Leaf, theirs: Leaf) -> str | None:
    if ours.type != theirs.type:
        return f"is a {theirs.type}, and it was made for a {ours.type}"
    if ours.dtype is None:
        same = ours.free or ours.value == theirs.value
        return None if same else f"is {theirs.value!r}, and it was made for {ours.value!r}"
    for name in ("dtype", "device", "requires_grad"):
        if getattr(ours, name) != getattr(theirs, name):
            return f"has {name} {getattr(theirs, name)}, and it was made for {getattr(ours, name)}"
    if len(ours.sizes) != len(theirs.sizes):
        return f"has {len(theirs.sizes)} dims, and it was made for {len(ours.sizes)}"
    if any(a is not None and a != b for a, b in zip(ours.sizes, theirs.sizes, strict=True)):
        return f"has shape {theirs.sizes}, and it was made for {ours.sizes}"
    if ours.strides is not None and ours.strides != theirs.strides:
        return f"has strides {theirs.strides}, and it was made for {ours.strides}"
    return None


class Unknown(Exception):
    """An argument that is neither a tensor nor a plain value; its path."""


def form(arguments: Mapping[str, Any], *, leave: Collection[str] = (), training: bool | None = None) -> Form:
    """The form of a call with every size taken as it is; `leave` are locals that are no arguments (`self`)."""
    found: list[Leaf] = []
    trees: list[tuple[str, str]] = []
    seen: dict[int, list[str]] = {}
    for name, argument in arguments.items():
        if name in leave:
            continue
        flat, spec = pytree.tree_flatten_with_path(argument)
        trees.append((name, str(spec)))
        for keys, value in flat:
            path = f"L[{name!r}]" + "".join(map(_step, keys))
            found.append(_leaf(path, value))
            if isinstance(value, torch.Tensor):
                seen.setdefault(id(value), []).append(path)
    same = tuple(tuple(paths) for paths in seen.values() if len(paths) > 1)
    return Form(tuple(found), tuple(trees), same, state(), training)


def _leaf(path: str, value: Any) -> Leaf:
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    if type(value) in _TENSORS and value.layout is torch.strided:
        sizes, strides = tuple(value.shape), tuple(value.stride())
        return Leaf(path, kind, None, False, value.dtype, value.device, value.requires_grad, sizes, strides)
    if type(value) in _PLAIN:
        return Leaf(path, kind, value)
    raise Unknown(path)


def freed(call: Form, sizes: Mapping[str, Sequence[Any]], numbers: Collection[str]) -> Form:
    """The form with the free sizes left out: `sizes` has for each source a number where it is static, else None."""
    made = []
    for leaf in call.leaves:
        if leaf.path in sizes and leaf.dtype is not None:
            given = tuple(sizes[leaf.path])
            made.append(dataclasses.replace(leaf, sizes=given, strides=None))
        elif leaf.path in numbers:
            made.append(dataclasses.replace(leaf, value=None, free=True))
        else:
            made.append(leaf)
    return dataclasses.replace(call, leaves=tuple(made))


def state() -> tuple[Any, ...]:
    """What of torch's own state a graph is captured under."""
    autocast: Any = False
    if torch._C._is_any_autocast_enabled():
        autocast = tuple((d, torch.get_autocast_dtype(d)) for d in ("cpu", "cuda") if torch.is_autocast_enabled(d))
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        autocast,
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
    )


@contextlib.contextmanager
def in_state(given: tuple[Any, ...]) -> Iterator[None]:
    """What `state` told, in another process."""
    grad, inference, autocast, dtype, deterministic = given
    with contextlib.ExitStack() as stack:
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        stack.callback(torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled())
        torch.set_default_dtype(dtype)
        torch.use_deterministic_algorithms(deterministic)
        stack.enter_context(in_thread_state(grad, inference, autocast or ()))
        yield


@contextlib.contextmanager
def in_thread_state(grad: bool, inference: bool, autocast: Iterable[tuple[str, Any]]) -> Iterator[None]:
    """The part of it that belongs to a thread."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(inference))
        stack.enter_context(torch.set_grad_enabled(grad))
        for device, dtype in autocast:
            stack.enter_context(torch.autocast(device, dtype=dtype))
        yield


def key(args: Sequence[Any], kwargs: Mapping[str, Any], training: bool | None) -> Any:
    """What a call is remembered by; None for one with something in it that is neither tensor nor plain value."""
    leaves, spec = pytree.tree_flatten((args, kwargs)) if kwargs or not _is_flat(args) else (args, len(args))
    parts: list[Any] = [spec, training, *state()]
    tensors: list[int] = []
    for value in leaves:
        kind = type(value)
        if kind in _TENSORS:
            if value.layout is not torch.strided:
                return None
            parts += (kind, value.shape, value.stride(), value.storage_offset(), value.dtype, value.device)
            parts.append(value.requires_grad)
            tensors.append(id(value))
        elif kind in _PLAIN:
            parts += (kind, value)
        else:
            return None
    if len(set(tensors)) != len(tensors):
        parts.append(tuple(tensors.index(t) for t in tensors))
    return tuple(parts)


def _is_flat(args: Sequence[Any]) -> bool:
    return all(type(a) in _TENSORS or type(a) in _PLAIN for a in args)


def overlap(tensors: Sequence[Any]) -> bool:
    """Whether two of these tensors share memory."""
    given = [t for t in tensors if isinstance(t, torch.Tensor)]
    return any(torch._C._is_alias_of(a, b) for i, a in enumerate(given) for b in given[i + 1 :])


def _step(key: Any) -> str:
    if hasattr(key, "idx"):
        return f"[{key.idx}]"
    return f"[{key.key!r}]" if hasattr(key, "key") else f".{key.name}"
