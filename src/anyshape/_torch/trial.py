"""A program run again with a remedy, without touching it.

Owns the settings of torch that a remedy stands for, and the door through which `torch.compile` goes meanwhile: the
results of compiled calls are summed up so that two runs can be compared, and arguments can be changed on the way in.
Used by trials only; a plain run of the doctor goes through none of it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import torch
import torch._dynamo.config as dynamo_config
import torch.compiler.config as compiler_config

from anyshape._torch import trees
from anyshape.doctor.events import Result
from anyshape.doctor.findings import Remedy

_SOURCES = {
    "TORCH_COMPILE_DYNAMIC_SOURCES": "dynamic_sources",
    "TORCH_COMPILE_UNBACKED_SOURCES": "unbacked_sources",
}
_MOST_RESULTS = 2000
_SAMPLES = 16


@contextlib.contextmanager
def settings(remedies: Sequence[Remedy]) -> Iterator[None]:
    """torch's own settings, as the remedies say."""
    sources: dict[str, str] = {}
    flags: dict[str, bool] = {}
    for remedy in remedies:
        for name, value in remedy.settings:
            if remedy.kind == "environment" and name in _SOURCES:
                key = _SOURCES[name]
                before = sources.get(key, getattr(compiler_config, key, ""))
                sources[key] = ",".join(part for part in (before, value) if part)
            elif remedy.kind == "config" and hasattr(dynamo_config, name):
                flags[name] = value == "True"
    with contextlib.ExitStack() as stack:
        if sources:
            stack.enter_context(compiler_config.patch(**sources))
        if flags:
            stack.enter_context(dynamo_config.patch(**flags))
        yield


@contextlib.contextmanager
def through(
    remedies: Sequence[Remedy], record: Callable[[Result], None] | None, instead: Callable[..., Any] | None = None
) -> Iterator[None]:
    """`torch.compile` in here gives callables whose arguments are changed and whose results are recorded.

    `instead`, where there is one, compiles in place of stock torch.
    """
    changes = {name: how for r in remedies if r.kind in ("contiguous", "plain") for name, how in r.settings}
    stock = torch.compile
    counter = iter(range(_MOST_RESULTS))

    @functools.wraps(stock)
    def compile(model: Any = None, **options: Any) -> Any:
        if model is None:
            return lambda inner: compile(inner, **options)
        if instead is None:
            compiled = stock(model, **options)
        else:
            known = ("fullgraph", "backend", "mode", "options", "disable")
            compiled = instead(model, **{k: v for k, v in options.items() if k in known})
        if isinstance(compiled, torch.nn.Module):
            inner = compiled.forward
            compiled.forward = _door(inner, model.forward, changes, record, counter)
            return compiled
        return _door(compiled, model, changes, record, counter)

    with mock.patch.object(torch, "compile", compile):
        yield


def _door(
    compiled: Any,
    model: Any,
    changes: Mapping[str, str],
    record: Callable[[Result], None] | None,
    counter: Iterator[int],
) -> Any:
    signature: inspect.Signature | None = None
    with contextlib.suppress(TypeError, ValueError):
        signature = inspect.signature(model)

    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():  # called from another compiled function: nothing of this is to be traced
            return compiled(*args, **kwargs)
        if changes and signature is not None:
            bound = signature.bind(*args, **kwargs)
            for name in changes.keys() & bound.arguments.keys():
                bound.arguments[name] = _CHANGES[changes[name]](bound.arguments[name])
            args, kwargs = bound.args, bound.kwargs
        result = compiled(*args, **kwargs)
        index = next(counter, None)
        if record is not None and index is not None:
            record(summary(index, result))
        return result

    functools.update_wrapper(call, compiled)
    return call


def _contiguous(value: Any) -> Any:
    return value.contiguous() if isinstance(value, torch.Tensor) else value


def _plain(value: Any) -> Any:
    return value.view_as(value) if isinstance(value, torch.nn.Parameter) else value


_CHANGES: Mapping[str, Callable[[Any], Any]] = {"contiguous": _contiguous, "plain": _plain}


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
