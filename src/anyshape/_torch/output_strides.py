"""The strides of what a compiled graph returns.

Owns one repair. Inductor gives an output the strides that its decompositions give it, and some lose those that the call
itself has: `roll` and `hstack([x, x])` of a channels-last image come out contiguous (torch 2.13 and 2.15). What was
captured knows the strides of the calls.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch
import torch._inductor.graph as inductor_graph
import torch.compiler.config as compiler_config
from torch._functorch._aot_autograd.descriptors import PlainAOTOutput
from torch._functorch._aot_autograd.schemas import OutputType
from torch._guards import TracingContext
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from anyshape._version import __version__

Strides = Sequence[Sequence[Any] | None]  # for each output; None where it is no tensor or has no strides to keep

_ITS_OWN = (OutputType.non_alias, OutputType.unsafe_view_alias)
_captured: contextvars.ContextVar[Strides] = contextvars.ContextVar("the strides that outputs have", default=())
_stock = inductor_graph.get_user_visible_output_strides


def of(graph: Any) -> Strides:
    """The strides with which a graph was captured."""
    (output,) = graph.graph.find_nodes(op="output")
    values = [n.meta.get("example_value") if isinstance(n, torch.fx.Node) else None for n in output.args[0]]
    return [_known(v) if isinstance(v, torch.Tensor) and v.layout == torch.strided else None for v in values]


def _known(value: torch.Tensor) -> Sequence[Any] | None:
    return None if free_unbacked_symbols(value.stride()) else value.stride()


@contextlib.contextmanager
def kept(strides: Strides, number: Callable[[Any], Any] = lambda n: n) -> Iterator[None]:
    """While a graph is compiled that was captured with them; `number` tells what one is in its own sizes, or None."""
    own = [None if s is None else [number(n) for n in s] for s in strides]
    known = [None if s is None or None in s else s for s in own]
    token = _captured.set(known)
    try:
        # Code is found in Inductor's cache by its graph and by this; stock torch's is another.
        with compiler_config.patch(cache_key_tag=f"{compiler_config.cache_key_tag} anyshape {__version__} {known}"):
            yield
    finally:
        _captured.reset(token)


def _visible(graph: Any) -> dict[Any, Any]:
    """As torch's, with the captured strides for outputs that have memory of their own."""
    made = dict(_stock(graph))
    captured, context = _captured.get(), TracingContext.try_get()
    told = getattr(context, "fw_metadata", None)
    (output,) = graph.find_nodes(op="output")
    for node, desc in zip(output.args[0], output.meta.get("desc") or (), strict=False):
        if node not in made or not isinstance(desc, PlainAOTOutput) or told is None or desc.idx >= len(captured):
            continue
        wanted = captured[desc.idx]
        if wanted is not None and told.output_info[desc.idx].output_type in _ITS_OWN and len(wanted) == len(made[node]):
            made[node] = tuple(wanted)
    return made


def patches() -> contextlib.AbstractContextManager[Any]:
    return mock.patch.object(inductor_graph, "get_user_visible_output_strides", _visible)
