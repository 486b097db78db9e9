"""What holds of torch while a captured graph is compiled.

Owns the one scope for a general program and for its variants: what AOTAutograd and Inductor do otherwise than for
stock; whether anything is compiled at all; and what a fork needs to compile.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import torch._dynamo.compiled_autograd as compiled_autograd
import torch._dynamo.convert_frame as convert_frame
import torch._functorch._aot_autograd.graph_compile as graph_compile
import torch._functorch.config as functorch_config
import torch._inductor.async_compile as async_compile
import torch._inductor.config as inductor_config
import torch.compiler.config as compiler_config

from anyshape._torch import (
    complex_views,
    concrete,
    cpu_kernels,
    cuda_graphs,
    direct_writes,
    divisions,
    first_calls,
    folds,
    gpu_repairs,
    kept_copies,
    kernel_numbers,
    lowering,
    output_strides,
    pooled_gradients,
    read_and_written,
    saved_strides,
    scalar_calls,
    shuffles,
    unpinned,
    zero_products,
)

_CONFIG = {
    # A cached AOT result would skip the trace whose questions have to be heard.
    "enable_autograd_cache": False,
    # The backward's questions belong to the program too, so they are asked before its guards are made.
    "force_non_lazy_backward_lowering": True,
}


@contextlib.contextmanager
def scope() -> Iterator[None]:
    """Entered under Dynamo's compile lock, and left before it is released."""
    config = {k: v for k, v in _CONFIG.items() if hasattr(functorch_config, k)}
    if compiled_autograd.compiled_autograd_enabled:
        # It compiles the backward as it runs, and a hook that it calls is no input that Inductor takes before.
        config.pop("force_non_lazy_backward_lowering", None)
    with contextlib.ExitStack() as stack:
        stack.enter_context(functorch_config.patch(**config))
        if hasattr(graph_compile, "collect_bw_donated_buffer_idxs"):
            # A graph that is retained may be differentiated twice, so nothing of it is given away.
            stack.enter_context(mock.patch.object(graph_compile, "collect_bw_donated_buffer_idxs", _none_donated))
        stack.enter_context(direct_writes.patches())
        stack.enter_context(lowering.patches())
        stack.enter_context(unpinned.patches())
        stack.enter_context(divisions.patches())
        stack.enter_context(read_and_written.patches())
        stack.enter_context(complex_views.patches())
        stack.enter_context(cpu_kernels.patches())
        stack.enter_context(kept_copies.patches())
        stack.enter_context(pooled_gradients.patches())
        stack.enter_context(output_strides.patches())
        stack.enter_context(gpu_repairs.patches())
        stack.enter_context(cuda_graphs.patches())
        stack.enter_context(first_calls.patches())
        stack.enter_context(zero_products.patches())
        stack.enter_context(folds.patches())
        stack.enter_context(saved_strides.patches())
        stack.enter_context(shuffles.patches())
        stack.enter_context(kernel_numbers.patches())
        stack.enter_context(scalar_calls.patches())
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


def _none_donated(*args: Any, **kwargs: Any) -> list[int]:
    return []


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
