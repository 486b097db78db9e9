"""Compiled graphs to bytes, and AOTAutograd's own results back.

Owns the backend whose results can be saved: AOTAutograd's bundled result, and the machine code of CPU kernels, which
torch would compile anew. Loading generates nothing and compiles nothing, and a kernel that is not in the bundle is an
error, not a reason to start a compiler.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import torch
import torch._functorch._aot_autograd.autograd_cache as autograd_cache
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
import torch._inductor.debug  # what compiled graphs take for granted
from torch._dynamo.convert_frame import compile_lock
from torch._functorch._aot_autograd.aot_autograd_result import deserialize_bundled_cache_entry
from torch._functorch._aot_autograd.schemas import AOTAutogradCacheInfo
from torch._inductor.codecache import CppPythonBindingsCodeCache, FxGraphCache
from torch._inductor.cpp_builder import CppBuilder

from anyshape._torch import light_externs, plain_code
from anyshape._torch.bundle import Bundle
from anyshape.errors import refuse_precompile

_BUNDLING = {
    "enable_autograd_cache": True,  # only so that a result is made; none is looked up and none is kept
    "force_autograd_cache": True,
    "bundled_autograd_cache": True,
}


class Bundled:
    """A compiled graph that can be saved. Called as any."""

    def __init__(self, compiled: Callable[..., Any], entry: Any, kernels: Mapping[str, str]) -> None:
        self._compiled = compiled
        self._entry = entry
        self._kernels = dict(kernels)

    def __call__(self, *args: Any) -> Any:
        return self._compiled(*args)

    def bundle(self) -> Bundle:
        if self._entry is None:
            raise refuse_precompile("torch gave no result that can be saved", "None")
        for output in (self._entry.compiled_fw, self._entry.compiled_bw):
            if output is not None and getattr(output.result, "torchbind_constants", None):
                raise refuse_precompile("the graph holds objects of TorchScript", "torchbind")
        plain = plain_code.plain(self._entry)
        try:
            entry = pickle.dumps(plain or self._entry)
        except Exception as error:
            raise refuse_precompile(
                "the compiled graph cannot be pickled", f"{type(error).__name__}: {error}"
            ) from error
        made = {}
        for key, path in self._kernels.items():
            with open(path, "rb") as file:
                made[key] = file.read()
        return Bundle(entry, made, plain is not None)


class BundlingBackend(torch._TorchCompileInductorWrapper):
    """Inductor, whose results can be saved."""

    def __call__(self, graph: Any, inputs: Sequence[Any]) -> Any:
        with _bundling() as (entries, kernels):
            compiled = super().__call__(graph, inputs)
        return Bundled(compiled, entries[-1] if len(entries) == 1 else None, kernels)


def bundling_backend(mode: str | None, options: dict[str, Any] | None) -> BundlingBackend:
    return BundlingBackend("default" if mode is None and options is None else mode, options, True)


@contextlib.contextmanager
def _bundling() -> Iterator[tuple[list[Any], dict[str, str]]]:
    """What AOTAutograd makes inside is handed over instead of going to torch's cache."""
    entries: list[Any] = []
    kernels: dict[str, str] = {}

    def try_load(mod: Any, args: Any, aot_config: Any, *rest: Any, **options: Any) -> Any:
        info = AOTAutogradCacheInfo("anyshape", time.time_ns(), forward_symints=[])
        if type(aot_config).__dataclass_params__.frozen:
            return None, dataclasses.replace(aot_config, cache_info=info)
        aot_config.cache_info = info  # torch 2.11
        return None

    def save(key: str, entry: Any, remote: bool) -> None:
        entry.pre_save()
        entries.append(entry)

    stock = CppPythonBindingsCodeCache.load_pybinding_async

    def load_pybinding_async(argtypes: Sequence[str], main_code: str, *rest: Any, **options: Any) -> Callable[[], Any]:
        future = stock(argtypes, main_code, *rest, **options)

        def kernel() -> Any:
            found = future()
            kernels[plain_code.kernel_key(argtypes, main_code, options.get("kernel_code"))] = found.__self__.__file__
            return found

        return kernel

    cache = autograd_cache.AOTAutogradCache
    with (
        functorch_config.patch(**{k: v for k, v in _BUNDLING.items() if hasattr(functorch_config, k)}),
        mock.patch.object(cache, "try_load", staticmethod(try_load)),
        mock.patch.object(cache, "save", staticmethod(save)),
        # The program's own predicates say when it may be used.
        mock.patch.object(cache, "generate_guards_expression", staticmethod(lambda *args: None)),
        mock.patch.object(CppPythonBindingsCodeCache, "load_pybinding_async", staticmethod(load_pybinding_async)),
    ):
        yield entries, kernels


def load(bundle: Bundle) -> Callable[..., Any]:
    """The compiled graph of a bundle. The bytes have to be trusted: they are unpickled, and their code is run."""
    with compile_lock, _loading(bundle.kernels):  # one at a time, and no frame is converted meanwhile
        entry = pickle.loads(bundle.entry)
        for output in (entry.compiled_fw, entry.compiled_bw):
            text = getattr(getattr(output, "result", None), "source_code", None)
            if text is not None:
                output.result.source_code = text.replace(light_externs.IMPORT, light_externs.LIGHT)
        return deserialize_bundled_cache_entry(entry)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """These variables and no others, which threads read and set meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _loading(kernels: Mapping[str, bytes]) -> Iterator[None]:
    thread = threading.get_ident()  # others may well compile in the meantime
    stock_load, stock_build = CppPythonBindingsCodeCache.load_pybinding_async, CppBuilder.build
    stock_hit = FxGraphCache.cache_hit_post_compile

    def load_pybinding_async(argtypes: Sequence[str], main_code: str, *rest: Any, **options: Any) -> Callable[[], Any]:
        if threading.get_ident() != thread:
            return stock_load(argtypes, main_code, *rest, **options)
        key = plain_code.kernel_key(argtypes, main_code, options.get("kernel_code"))
        if key not in kernels:
            raise plain_code.incomplete(f"kernel {key[:16]}")
        return functools.partial(plain_code.load_kernel, key, kernels[key])

    def build(self: Any, *args: Any, **options: Any) -> None:
        if threading.get_ident() != thread:
            return stock_build(self, *args, **options)
        raise plain_code.incomplete("C++ code")

    def hit(graph: Any, info: Any, constants: Any) -> Any:
        """Without what torch does for its tests and logs, for which it imports all lowerings."""
        for_gpu = graph._triton_bundle is not None and any(vars(graph._triton_bundle).values())
        if threading.get_ident() != thread or for_gpu:
            return stock_hit(graph, info, constants)
        graph.after_deserialization(constants)
        return graph, info

    own = plain_code.directory()
    environment = {"TORCHINDUCTOR_CACHE_DIR": own, "TRITON_CACHE_DIR": os.path.join(own, "triton")}
    with (
        _environment(environment),
        inductor_config.patch(compile_threads=1),
        functorch_config.patch(bundled_autograd_cache=True),
        mock.patch.object(CppPythonBindingsCodeCache, "load_pybinding_async", staticmethod(load_pybinding_async)),
        mock.patch.object(CppBuilder, "build", build),
        mock.patch.object(FxGraphCache, "cache_hit_post_compile", staticmethod(hit)),
    ):
        yield
