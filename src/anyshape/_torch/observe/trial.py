"""Digests of the results of compiled calls, to compare two runs of a program.

Owns what stands around `torch.compile` and around what anyshape compiled during a trial of the doctor. A plain run of
the doctor goes through none of it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

from anyshape._torch.repairs import registry
from anyshape._torch.repairs.registry import repair
from anyshape._torch.runtime import trees
from anyshape.doctor.events import Result

_MOST_RESULTS = 2000
_SAMPLES = 16
Record = Callable[[Result], None]


@contextlib.contextmanager
def recorded(record: Record, *ours: type) -> Iterator[None]:
    """Results of what `torch.compile` gives, and of calls of the classes `ours`, are recorded in the order of calls."""
    results = _Results(record)
    with contextlib.ExitStack() as stack:
        stack.enter_context(registry.entered("trial", results=results, ours=ours))
        for kind in ours:
            stack.enter_context(mock.patch.object(kind, "__call__", results.around_method(kind.__call__)))
        yield


@repair(
    "torch:compile",
    scope="trial",
    phase="run time",
    kind="watch",
    apart=False,
    symptom="Whether a remedy changes results is not known.",
    cause="A program says nothing of what its compiled functions give.",
    cure="The doctor records what they give, in the order of calls.",
    goes="with the doctor's trials",
)
def compile_recorded(stock: Any, *, results: _Results, ours: tuple[type, ...]) -> Any:
    @functools.wraps(stock)
    def compile(model: Any = None, **options: Any) -> Any:
        if model is None:
            return lambda inner: torch.compile(inner, **options)
        compiled = stock(model, **options)
        if isinstance(compiled, ours) or compiled is model:
            return compiled
        if isinstance(compiled, torch.nn.Module):
            compiled.forward = results.around(compiled.forward)
            return compiled
        return results.around(compiled)

    return compile


class _Results:
    """Counts the calls, and leaves out those that are made inside another."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._counter = iter(range(_MOST_RESULTS))
        self._inside = threading.local()

    def around(self, compiled: Any) -> Any:
        return functools.update_wrapper(lambda *args, **kwargs: self._call(compiled, args, kwargs), compiled)

    def around_method(self, method: Any) -> Any:
        return functools.update_wrapper(lambda *args, **kwargs: self._call(method, args, kwargs), method)

    def _call(self, compiled: Any, args: Any, kwargs: Any) -> Any:
        # Called from another compiled function, nothing of this is to be traced.
        if torch.compiler.is_compiling() or getattr(self._inside, "yes", False):
            return compiled(*args, **kwargs)
        self._inside.yes = True
        try:
            result = compiled(*args, **kwargs)
        finally:
            self._inside.yes = False
        index = next(self._counter, None)
        if index is not None:
            self._record(summary(index, result))
        return result


def without_stock(function: Any) -> Any:
    """The function that stock `torch.compile` was given, for what it gave back."""
    return getattr(function, "_torchdynamo_orig_callable", function)


def summary(index: int, result: Any) -> Result:
    """A result as text, digest and numbers: equal digests are equal bytes, near numbers near results."""
    leaves, form = trees.flatten(result)
    texts, numbers, digest = [str(form)], [], hashlib.sha256()
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            texts.append(f"{leaf.dtype}{list(leaf.shape)}")
            numbers += _numbers(leaf.detach(), digest)
        else:
            texts.append(repr(leaf)[:200])
    return Result(index, " ".join(texts), digest.hexdigest(), tuple(numbers))


def _numbers(value: torch.Tensor, digest: Any) -> list[float]:
    with torch.no_grad():
        flat = value.cpu().to(torch.complex128 if value.is_complex() else torch.float64).reshape(-1)
        if flat.is_complex():
            flat = torch.view_as_real(flat).reshape(-1)
        flat = flat.contiguous()
        digest.update(bytes(flat.view(torch.uint8).tolist()) if flat.numel() < 65_536 else repr(flat.sum()).encode())
        step = max(1, flat.numel() // _SAMPLES)
        return [float(flat.sum()), float(flat.abs().sum()), *flat[::step][:_SAMPLES].tolist()]
