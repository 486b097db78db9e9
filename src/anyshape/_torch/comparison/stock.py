"""Stock `torch.compile` in its usual modes, counted, for comparisons.

Owns the ways people use it today, with its programs counted and its limits raised so that nothing hides behind an eager
fallback. Used by the demo and the benchmarks; `anyshape.compile` itself does not know this module.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch._dynamo.config as dynamo_config
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
import torch.fx.experimental._config as shapes_config
from torch._dynamo import lookup_backend
from torch._dynamo.decorators import mark_unbacked as _mark_unbacked
from torch._inductor.utils import fresh_cache

MODES = ("auto", "dynamic=True", "mark_unbacked")
ALL_MODES = (*MODES, "backed_size_oblivious")  # the last is a setting of torch's own, wrong at size 0
_RESUMED = "torch_dynamo_resume_in_"  # how Dynamo names what follows a graph break
_NO_LIMIT = 1 << 20
_MEASURING: tuple[tuple[Any, dict[str, Any]], ...] = (
    (dynamo_config, {"recompile_limit": _NO_LIMIT, "accumulated_recompile_limit": _NO_LIMIT}),
    (functorch_config, {"enable_autograd_cache": False}),
    (inductor_config, {"fx_graph_cache": False}),
)


@dataclasses.dataclass
class Counted:
    """A function compiled by stock torch, and how many graphs its backend has been given."""

    call: Callable[..., Any]
    programs: int = 0
    continuations: int = 0  # graphs that begin where another one broke off

    def __call__(self, *args: Any) -> Any:
        return self.call(*args)


def compile(
    fn: Callable[..., Any], *, mode: str, backend: str = "inductor", free: Sequence[Sequence[int]] = ()
) -> Counted:
    """`torch.compile` as `mode` says. `free` names the dims that vary, per argument: `mark_unbacked` marks them."""
    if mode not in ALL_MODES:
        raise ValueError(f"mode {mode!r} is not one of {', '.join(ALL_MODES)}")
    inner = lookup_backend(backend)

    def counting(graph: Any, inputs: Any) -> Any:
        counted.programs += 1
        counted.continuations += any(_RESUMED in (node.stack_trace or "") for node in graph.graph.nodes)
        return inner(graph, inputs)

    compiled = torch.compile(fn, backend=counting, dynamic=True if mode == "dynamic=True" else None)

    def marked(*args: Any) -> Any:
        for value, dims in zip(args, free, strict=True):
            for dim in dims:
                _mark_unbacked(value, dim)
        return compiled(*args)

    def oblivious(*args: Any) -> Any:
        with shapes_config.patch(backed_size_oblivious=True):
            return compiled(*args)

    counted = Counted({"mark_unbacked": marked, "backed_size_oblivious": oblivious}.get(mode, compiled))
    return counted


def capturing_data() -> contextlib.AbstractContextManager[Any]:
    """Numbers and sizes that come out of the data do not break the graph in here, as they do not in anyshape."""
    return dynamo_config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True)


@contextlib.contextmanager
def measuring() -> Iterator[None]:
    """Counts and seconds are true in here: no recompile limit, no cache that an earlier run filled."""
    with contextlib.ExitStack() as stack:
        for config, settings in _MEASURING:
            stack.enter_context(config.patch(**{k: v for k, v in settings.items() if hasattr(config, k)}))
        yield


@contextlib.contextmanager
def afresh() -> Iterator[None]:
    """Nothing that was compiled or learnt about sizes before is of use in here, neither in memory nor on disk."""
    torch._dynamo.reset()
    with fresh_cache():
        yield


def is_continuation(name: str) -> bool:
    """Whether a captured part of this name begins where another one broke off."""
    return name.startswith(_RESUMED)
