"""The scope in which AOTAutograd and Inductor compile a captured graph.

Owns the one scope for a general program and for its variants: what AOTAutograd and Inductor do otherwise than for
stock; whether anything is compiled at all; and what a fork needs to compile.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any

import torch
import torch._dynamo.compiled_autograd as compiled_autograd
import torch._dynamo.convert_frame as convert_frame
import torch._inductor.async_compile as async_compile
import torch._inductor.config as inductor_config
import torch.compiler.config as compiler_config

from anyshape._torch.compile import cuda_graphs, direct_writes
from anyshape._torch.fake_runs import concrete
from anyshape._torch.repairs import registry
from anyshape._torch.repairs.cpp import cpu_kernels
from anyshape._torch.repairs.functionalization import first_calls, saved_strides
from anyshape._torch.repairs.inductor import (
    avg_pool_backward,
    col2im,
    complex_views,
    dynamic_lowerings,
    gpu_kernels,
    index_divisions,
    kernel_numbers,
    known_ranges,
    noop_elimination_aliasing,
    output_strides,
    randperm_index_pattern,
    reinplace_hazards,
    size_choices,
    zero_products,
)
from anyshape._torch.repairs.registry import repair
from anyshape._torch.repairs.scalars import int_tensors, scalar_calls

# What is declared in these holds while a graph is compiled, beside what is declared here.
DECLARED_IN = (
    complex_views,
    cpu_kernels,
    cuda_graphs,
    direct_writes,
    index_divisions,
    first_calls,
    col2im,
    gpu_kernels,
    int_tensors,
    noop_elimination_aliasing,
    kernel_numbers,
    known_ranges,
    size_choices,
    output_strides,
    avg_pool_backward,
    reinplace_hazards,
    saved_strides,
    scalar_calls,
    randperm_index_pattern,
    dynamic_lowerings,
    zero_products,
)


@repair(
    "torch._functorch.config:enable_autograd_cache",
    "torch._functorch.config:force_non_lazy_backward_lowering",
    scope="compile",
    phase="AOT",
    kind="meaning",
    absent="skip",
    symptom="Questions about sizes are asked where nobody hears them, or not at all.",
    cause="AOTAutograd takes its results from a cache, and compiles a gradient when it is first needed.",
    cure="The cache is off, and the gradient is compiled at once.",
    goes="when cached results say what was asked",
)
def settings() -> dict[str, Any]:
    # A cached AOT result would skip the trace whose questions have to be heard.
    config = {"enable_autograd_cache": False}
    # Compiled autograd compiles the backward as it runs; a hook that it calls is no input that Inductor takes before.
    if not compiled_autograd.compiled_autograd_enabled:
        # The backward's questions belong to the program too, so they are asked before its guards are made.
        config["force_non_lazy_backward_lowering"] = True
    return config


@repair(
    "torch._functorch._aot_autograd.graph_compile:collect_bw_donated_buffer_idxs",
    scope="compile",
    phase="AOT",
    kind="meaning",
    absent="skip",
    symptom="`backward(retain_graph=True)` raises.",
    cause="AOTAutograd gives buffers away that a gradient is the last to read.",
    cure="A graph that is retained may be differentiated twice, so nothing of it is given away.",
    goes="when torch tells which graphs are retained",
)
def collect_bw_donated_buffer_idxs(*args: Any, **kwargs: Any) -> list[int]:
    return []


@contextlib.contextmanager
def scope() -> Iterator[None]:
    """Entered under Dynamo's compile lock, and left before it is released."""
    with first_calls.noted(), registry.entered("compile"):
        yield


@contextlib.contextmanager
def none_under_way(*, wait: bool) -> Iterator[bool]:
    """Whether no other thread compiles, after a `wait` for those that do; none begins inside."""
    alone = convert_frame.compile_lock.acquire(blocking=wait)
    try:
        yield alone
    finally:
        if alone:
            convert_frame.compile_lock.release()


def in_a_fork() -> None:
    """What a forked process has to be told before it compiles."""
    if inductor_config.cpp.threads < 1:  # the code is for as many threads as the parent has
        inductor_config.cpp.threads = torch.get_num_threads()
    torch.set_num_threads(1)  # but those of OpenMP's pool stayed with it
    async_compile.AsyncCompile.pool.cache_clear()  # so did those that build kernels; torch forgets other pools itself


@contextlib.contextmanager
def told_apart(graph: Any) -> Iterator[None]:
    """Inductor's cache takes equal calls for equal code; where sizes of 0 and 1 are, they may lie in other orders."""
    if not hasattr(compiler_config, "cache_key_tag"):
        yield
        return
    strides: list[str] = []
    known: dict[Any, str] = {}
    for node in graph.graph.nodes:
        for value in concrete.leaves(node.meta.get("val")):
            if isinstance(value, torch.Tensor) and value.layout is torch.strided:
                exprs = map(concrete.number_expr, value.stride())
                strides.append(",".join(known.get(e) or known.setdefault(e, str(e)) for e in exprs))
    digest = hashlib.sha256("\n".join(strides).encode()).hexdigest()
    with compiler_config.patch(cache_key_tag=f"{compiler_config.cache_key_tag}-{digest}"):
        yield
