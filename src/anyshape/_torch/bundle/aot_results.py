"""The AOTAutograd backend whose results can be saved, with C++ kernels as machine code.

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

import torch
import torch._inductor.debug  # what compiled graphs take for granted
from torch._dynamo.convert_frame import compile_lock
from torch._functorch._aot_autograd.aot_autograd_result import deserialize_bundled_cache_entry
from torch._functorch._aot_autograd.schemas import AOTAutogradCacheInfo

from anyshape._torch.bundle import light_externs, plain_code
from anyshape._torch.bundle.code_bytes import Bundle
from anyshape._torch.repairs import registry
from anyshape._torch.repairs.registry import repair
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
    with registry.entered("bundle", entries=entries, kernels=kernels):
        yield entries, kernels


_CACHE = "torch._functorch._aot_autograd.autograd_cache:AOTAutogradCache"
_TO_SAVE: Any = {
    "scope": "bundle",
    "phase": "AOT",
    "kind": "meaning",
    "symptom": "A compiled graph cannot be saved.",
    "goes": "when torch can be asked for a bundled result",
}


@repair(
    "torch._functorch.config:enable_autograd_cache",
    "torch._functorch.config:force_autograd_cache",
    "torch._functorch.config:bundled_autograd_cache",
    **_TO_SAVE,
    cause="AOTAutograd makes a result that can be pickled for its cache alone.",
    cure="The cache is on, for this one graph.",
    absent="skip",
    over=("compile_scope.settings",),
)
def bundling_settings() -> dict[str, Any]:
    return _BUNDLING


@repair(
    f"{_CACHE}.try_load",
    **_TO_SAVE,
    cause="autograd_cache.py:AOTAutogradCache.try_load would look a result up.",
    cure="Nothing is found.",
)
def try_load(stock: Any) -> Any:
    def load(mod: Any, args: Any, aot_config: Any, *rest: Any, **options: Any) -> Any:
        info = AOTAutogradCacheInfo("anyshape", time.time_ns(), forward_symints=[])
        if type(aot_config).__dataclass_params__.frozen:
            return None, dataclasses.replace(aot_config, cache_info=info)
        aot_config.cache_info = info  # torch 2.11
        return None

    return staticmethod(load)


@repair(
    f"{_CACHE}.save",
    **_TO_SAVE,
    cause="autograd_cache.py:AOTAutogradCache.save writes a result to torch's cache.",
    cure="It is handed over.",
)
def save(stock: Any, *, entries: list[Any]) -> Any:
    def saved(key: str, entry: Any, remote: bool) -> None:
        entry.pre_save()
        entries.append(entry)

    return staticmethod(saved)


@repair(
    f"{_CACHE}.generate_guards_expression",
    **_TO_SAVE,
    cause="autograd_cache.py:AOTAutogradCache makes a result with guards of torch's on sizes.",
    cure="There is none: the program's own predicates say when it may be used.",
)
def generate_guards_expression(stock: Any) -> Any:
    return staticmethod(lambda *args: None)


@repair(
    "torch._inductor.codecache:CppPythonBindingsCodeCache.load_pybinding_async",
    **_TO_SAVE,
    cause="codecache.py does not tell which file a kernel was loaded from.",
    cure="The files are noted.",
)
def noted_kernels(stock: Any, *, kernels: dict[str, str]) -> Any:
    def load_pybinding_async(argtypes: Sequence[str], main_code: str, *rest: Any, **options: Any) -> Callable[[], Any]:
        future = stock(argtypes, main_code, *rest, **options)

        def kernel() -> Any:
            found = future()
            kernels[plain_code.kernel_key(argtypes, main_code, options.get("kernel_code"))] = found.__self__.__file__
            return found

        return kernel

    return staticmethod(load_pybinding_async)


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
    own = plain_code.directory()
    environment = {"TORCHINDUCTOR_CACHE_DIR": own, "TRITON_CACHE_DIR": os.path.join(own, "triton")}
    thread = threading.get_ident()  # others may well compile in the meantime
    with _environment(environment), registry.entered("load", kernels=kernels, thread=thread):
        yield


_TO_LOAD: Any = {
    "scope": "load",
    "phase": "load",
    "kind": "meaning",
    "goes": "when torch loads a bundled result with its kernels, and never compiles",
}


@repair(
    "torch._inductor.config:compile_threads",
    **_TO_LOAD,
    symptom="A pool of processes is started to load a file.",
    cause="async_compile.py warms up its pool when it is imported.",
    cure="One thread is enough.",
)
def one_thread() -> dict[str, Any]:
    return {"compile_threads": 1}


@repair(
    "torch._functorch.config:bundled_autograd_cache",
    **_TO_LOAD,
    symptom="A bundled result is not understood.",
    cause="autograd_cache.py takes a result for one that is looked up elsewhere.",
    cure="It is said that results are bundled.",
    over=("aot_results.bundling_settings",),
)
def bundled() -> dict[str, Any]:
    return {"bundled_autograd_cache": True}


@repair(
    "torch._inductor.codecache:CppPythonBindingsCodeCache.load_pybinding_async",
    **_TO_LOAD,
    symptom="Loading a file compiles C++ code.",
    cause="codecache.py looks kernels up in a cache of its own, and compiles those that are not there.",
    cure="Kernels are those of the file, for the thread that loads it.",
    over=("aot_results.noted_kernels",),
)
def kernels_of_the_file(stock: Any, *, kernels: Mapping[str, bytes], thread: int) -> Any:
    def load_pybinding_async(argtypes: Sequence[str], main_code: str, *rest: Any, **options: Any) -> Callable[[], Any]:
        if threading.get_ident() != thread:
            return stock(argtypes, main_code, *rest, **options)  # type: ignore[no-any-return]
        key = plain_code.kernel_key(argtypes, main_code, options.get("kernel_code"))
        if key not in kernels:
            raise plain_code.incomplete(f"kernel {key[:16]}")
        return functools.partial(plain_code.load_kernel, key, kernels[key])

    return staticmethod(load_pybinding_async)


@repair(
    "torch._inductor.cpp_builder:CppBuilder.build",
    **_TO_LOAD,
    symptom="Loading a file compiles C++ code.",
    cause="cpp_builder.py builds what is not in its cache.",
    cure="That is an error.",
)
def build(stock: Any) -> Any:
    def refused(self: Any, *args: Any, **options: Any) -> None:
        raise plain_code.incomplete("C++ code")

    return refused


@repair(
    "torch._inductor.codecache:FxGraphCache.cache_hit_post_compile",
    **_TO_LOAD,
    symptom="Loading a file imports all of Inductor's lowerings.",
    cause="codecache.py:FxGraphCache.cache_hit_post_compile does so for torch's tests and logs.",
    cure="It is left out, but for GPUs.",
)
def cache_hit_post_compile(stock: Any, *, thread: int) -> Any:
    def hit(graph: Any, info: Any, constants: Any) -> Any:
        for_gpu = graph._triton_bundle is not None and any(vars(graph._triton_bundle).values())
        if threading.get_ident() != thread or for_gpu:
            return stock(graph, info, constants)
        graph.after_deserialization(constants)
        return graph, info

    return staticmethod(hit)
