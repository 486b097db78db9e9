"""Calls of a declared callable, checked against the declaration before anything runs.

Owns the key of a call as far as it is declared (its function is generated once, since it runs at each call), the keys
that have been let in, and the layouts that inputs are given. What is wrong with a call is told by the declaration.
"""

from __future__ import annotations

import collections
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anyshape.declaration import Declaration, Path
from anyshape.declaration.path import canonical, read_path
from anyshape.declaration.place import in_key
from anyshape.declaration.policy import TensorPolicy
from anyshape.declaration.shape import ANY
from anyshape.errors import InvariantError
from anyshape.foundation import limits

_CONTAINERS = (list, tuple, dict)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class _Calls(threading.local):
    """The arguments of the call that a thread is making."""

    now: tuple[tuple[Any, ...], dict[str, Any]] | None = None


class EntryCheck:
    """Lets calls in. `copies` counts inputs that were made contiguous because they were declared so."""

    def __init__(self, declaration: Declaration, signature: inspect.Signature | None, owner: Any = None) -> None:
        self.declaration = declaration
        self.declared_in: str | None = None  # the file that says so
        self.copies: collections.Counter[str] = collections.Counter()
        self._signature, self._owner = signature, owner
        self._laid_out = _laid_out(declaration, signature)
        self._seen: set[Any] = set()
        self._most_keys = limits.keys()
        self._key = _key_function(declaration, signature, owner)
        self._first: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}  # layouts as first seen
        self._contiguous = {p for p, word in declaration.layouts.items() if word == "contiguous"}
        self._copies_inputs = bool(self._contiguous) or declaration.layout == "contiguous"
        self._calls = _Calls()

    def __reduce__(self) -> tuple[Any, ...]:
        return EntryCheck, (self.declaration, self._signature, self._owner)

    # -- each call ---------------------------------------------------------------------------------------------

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function, behind this check."""
        key, seen, check = self._key, self._seen, self._check

        def enter(*args: Any, **kwargs: Any) -> Any:
            try:
                known = key(*args, **kwargs) in seen
            except (TypeError, AttributeError, KeyError, IndexError):
                known = False
            if not known:
                check(args, kwargs)
            return function(*args, **kwargs)

        return self._with_copies(enter) if self._copies_inputs else enter

    def remembered(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that may capture: the check is told then of which call."""
        calls = self._calls

        def call(*args: Any, **kwargs: Any) -> Any:
            before = calls.now
            calls.now = args, kwargs
            try:
                return function(*args, **kwargs)
            finally:
                calls.now = before

        return call

    def _with_copies(self, enter: Callable[..., Any]) -> Callable[..., Any]:
        def copy_and_enter(*args: Any, **kwargs: Any) -> Any:
            written: list[tuple[Any, Any, int]] = []
            args, kwargs = self._made_contiguous(args, kwargs, written)
            try:
                return enter(*args, **kwargs)
            finally:
                for original, copy, version in written:
                    if copy._version != version:  # what was written to the copy was meant for the original
                        original.copy_(copy)

        return copy_and_enter

    # -- a new key ---------------------------------------------------------------------------------------------

    def _check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        arguments = self._arguments(args, kwargs)
        if arguments is None:
            return  # the call itself is wrong, and Python says so better
        fetch = lambda path: path.fetch(arguments, args=args, kwargs=kwargs, owner=self._owner)
        shapes = self.declaration.tensors(arguments, args=args, kwargs=kwargs, owner=self._owner)
        self.declaration.bind(shapes)
        for path in self._laid_out:
            word, tensor = self.declaration.layout_of(path.text), fetch(path)
            if word in ("dense", "example") and hasattr(tensor, "stride"):
                self._check_layout(path.text, str(word), tuple(tensor.shape), tuple(tensor.stride()))
        if len(self._seen) >= self._most_keys:
            self._seen.clear()
        try:
            self._seen.add(self._key(*args, **kwargs))
        except (TypeError, AttributeError, KeyError, IndexError):
            return  # an optional container that is not there: such calls are checked each time

    def _check_layout(self, path: str, word: str, sizes: tuple[int, ...], strides: tuple[int, ...]) -> None:
        first = self._first.setdefault(path, (sizes, strides)) if word == "example" else None
        if 0 in sizes or (_dense(sizes, strides) if first is None else _alike(first, sizes, strides)):
            return
        what = f"{path} has gaps, and dense is declared" if first is None else f"{path} is not laid out as first seen"
        raise InvariantError(
            what,
            where=f'layout["{path}"] = "{word}"',
            value=f"strides {strides} of shape {sizes}",
            before=None if first is None else f"strides {first[1]} of shape {first[0]}",
            fix=f'{path}.contiguous(), or layout={{"{path}": "any"}}',
            code="AS022",
        )

    def _arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if self._signature is None:
            return kwargs
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError:
            return None

    # -- the call that is being made ---------------------------------------------------------------------------

    def policies(self) -> dict[int, TensorPolicy]:
        """What is declared of each tensor of the call that this thread is making, by identity."""
        args, kwargs = self._calls.now or ((), {})
        arguments = self._arguments(args, kwargs) or {}
        found: dict[int, TensorPolicy] = {}
        for shape in self.declaration.shapes:
            tensor = shape.path.fetch(arguments, args=args, kwargs=kwargs, owner=self._owner)
            if tensor is not None and shape.accepts_rank(len(tensor.shape)):
                layout = self.declaration.layout_of(shape.path.text)
                found[id(tensor)] = TensorPolicy(shape.path.text, shape.at_rank(len(tensor.shape)), layout)
        for path in self._laid_out:
            tensor = path.fetch(arguments, args=args, kwargs=kwargs, owner=self._owner)
            if tensor is not None and id(tensor) not in found and hasattr(tensor, "shape"):
                dims = (ANY,) * len(tensor.shape)
                found[id(tensor)] = TensorPolicy(path.text, dims, self.declaration.layout_of(path.text))
        return found

    def values(self) -> dict[str, int]:
        """The value of each name in the call that this thread is making."""
        args, kwargs = self._calls.now or ((), {})
        arguments = self._arguments(args, kwargs) or {}
        shapes = self.declaration.tensors(arguments, args=args, kwargs=kwargs, owner=self._owner)
        return dict(self.declaration.bind(shapes).sizes)

    def still_holds(self) -> bool:
        """Whether the call is as it was let in: what has run of it since may have resized an argument."""
        try:
            self.values()
        except InvariantError:
            return False
        return True

    # -- layouts -----------------------------------------------------------------------------------------------

    def _made_contiguous(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], written: list[tuple[Any, Any, int]]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with every input contiguous that was declared so."""
        chosen: dict[int, str] | None = None
        if self.declaration.layout != "contiguous":
            arguments = self._arguments(args, kwargs) or {}
            paths = [p for p in self._laid_out if p.text in self._contiguous]
            tensors = [(p.fetch(arguments, args=args, kwargs=kwargs, owner=self._owner), p.text) for p in paths]
            chosen = {id(t): text for t, text in tensors if t is not None}

        def made(value: Any) -> Any:
            if isinstance(value, _CONTAINERS):
                return _rebuilt(value, made)
            if not hasattr(value, "is_contiguous") or (chosen is not None and id(value) not in chosen):
                return value
            if value.is_contiguous():
                return value
            copy = value.contiguous()
            written.append((value, copy, copy._version))
            self.copies["" if chosen is None else chosen[id(value)]] += 1
            return copy

        return tuple(made(a) for a in args), {k: made(v) for k, v in kwargs.items()}


def _rebuilt(value: Any, made: Callable[[Any], Any]) -> Any:
    """A container with its values made; the very same one where nothing changed."""
    old = list(value.values()) if isinstance(value, dict) else list(value)
    new = [made(v) for v in old]
    if all(a is b for a, b in zip(old, new, strict=True)):
        return value
    if isinstance(value, dict):
        return type(value)(zip(value, new, strict=True))
    return type(value)(*new) if hasattr(value, "_fields") else type(value)(new)


def _laid_out(declaration: Declaration, signature: inspect.Signature | None) -> tuple[Path, ...]:
    """The paths whose layout is declared one by one, and all declared ones where the word is for all."""
    if declaration.layout is not None:
        return declaration.paths
    return tuple(read_path(in_key("layout", text, ""), signature) for text in declaration.layouts)


def _key_function(declaration: Declaration, signature: inspect.Signature | None, owner: Any) -> Callable[..., Any]:
    """A function of the arguments of a call: the shape of each declared tensor, and the strides that matter."""
    paths = [(p, "shape") for p in declaration.paths]
    paths += [
        (p, "stride()")
        for p in _laid_out(declaration, signature)
        if declaration.layout_of(p.text) in ("dense", "example")
    ]
    if signature is None:
        parts = [f"_fetch({i}, args, kwargs).{what}" for i, (_, what) in enumerate(paths)]
        text = "*args, **kwargs"
    else:
        text, parts = _parameters(signature), [_reach(p, signature, what) for p, what in paths]
    lines = f"def key({text}):\n    return ({''.join(p + ', ' for p in parts)})"

    def fetch(index: int, args: Any, kwargs: Any) -> Any:
        return paths[index][0].fetch(kwargs, args=args, kwargs=kwargs, owner=owner)

    scope: dict[str, Any] = {"_owner": owner, "_fetch": fetch, "_none": None}
    # The source holds identifiers and quoted keys, which the reading of paths has let through, and nothing else.
    exec(compile(lines, "<anyshape door>", "exec"), scope)
    return scope["key"]


def _parameters(signature: inspect.Signature) -> str:
    """The parameters of a signature as source; what is left out is None."""
    made = [
        p.replace(annotation=p.empty, default=p.empty if p.default is p.empty else None)
        for p in signature.parameters.values()
    ]
    return str(inspect.Signature(made))[1:-1]


def _reach(path: Path, signature: inspect.Signature, what: str) -> str:
    """The expression that gives the shape of the tensor at a path."""
    canon: tuple[Any, ...] = canonical(path, signature)
    root, steps = canon[0], list(canon[1:])
    parameters = signature.parameters
    start = str(root)
    if root not in parameters:
        positional = next((p.name for p in parameters.values() if p.kind is _VARIADIC[0]), None)
        named = next((p.name for p in parameters.values() if p.kind is _VARIADIC[1]), None)
        if root == "self":
            start = "_owner"
        elif root == "args" and positional is not None:
            before = sum(p.kind not in (*_VARIADIC, inspect.Parameter.KEYWORD_ONLY) for p in parameters.values())
            steps[0] = (False, int(steps[0][1]) - before)
            start = positional
        else:
            start = f"{named}.get({str(root)!r})"
    value = start + "".join(f".{v}" if attribute else f"[{v!r}]" for attribute, v in steps)
    optional = root in parameters and not steps and parameters[str(root)].default is inspect.Parameter.empty
    return f"{value}.{what}" if optional else f"(None if {value} is None else {value}.{what})"


def _dense(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(strides, sizes, strict=True) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _alike(first: tuple[Sequence[int], Sequence[int]], sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether strides lie as others did: the same dims expanded, in the same order, without gaps if those had none."""
    seen, laid = first
    both = [i for i in range(len(sizes)) if len(seen) == len(sizes) and sizes[i] > 1 and seen[i] > 1]
    if len(seen) != len(sizes) or any((strides[i] == 0) != (laid[i] == 0) for i in both):
        return False
    order = lambda s: sorted(both, key=lambda i: (s[i], -i))
    return order(strides) == order(laid) and _dense(sizes, strides) == _dense(seen, laid)
