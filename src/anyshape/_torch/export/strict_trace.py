"""torch's strict export traced with free sizes.

Owns the scope in which torch's own strict export runs for anyshape: Dynamo captures as it does for a compiled call, and
what is asked while the captured graph becomes aten is written down too. What comes out is torch's exported program,
still with the symbols of the capture; `unbacked_program` gives it those that it is to be kept with.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch._dynamo.convert_frame as convert_frame
from torch.export.dynamic_shapes import _combine_args
from torch.utils import _pytree as pytree

from anyshape._torch.capture import capture_scope, nodes
from anyshape._torch.fake_runs import concrete
from anyshape._torch.repairs import registry
from anyshape._torch.repairs.registry import Place, repair
from anyshape.assumptions.recording import Recording


def trace(
    module: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    begin: Callable[[], Recording],
    rules: Sequence[Mapping[Any, Any]],
) -> tuple[Any, Recording | None]:
    """torch's exported program, every dim of every input free, and what its trace assumed."""
    recordings: list[Recording] = []

    def make_recording() -> Recording:
        recordings.append(begin())
        return recordings[-1]

    shapes = pytree.tree_map(_every_dim, _combine_args(module, args, kwargs))
    patches = capture_scope.patches(make_recording, rules, whole=True, exporting=True)
    with convert_frame.compile_lock, patches, _unmarked((args, kwargs)), concrete.quietly():
        with registry.entered("export", recordings=recordings), plain_attention():
            program = torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=True)
    recording = recordings[-1] if recordings else None
    if recording is not None:
        for graph in program.graph_module.modules():  # bodies of higher-order calls too
            if isinstance(graph, torch.fx.GraphModule):
                found = nodes.aten_nodes(graph, strides_show=False)
                recording.aten.extend(n for n in found if not n.opaque)
    return program, recording


@repair(
    "torch.export._trace:_export_to_torch_ir",
    scope="export",
    phase="export",
    kind="meaning",
    symptom="What AOTAutograd asks of an exported graph is taken for a question of the function.",
    cause="export/_trace.py captures and makes aten graphs in one call.",
    cure="Between the two it is said that the capture is over.",
    goes="when the parts of torch.export can be called one by one",
)
def export_to_torch_ir(stock: Any, *, recordings: list[Recording]) -> Any:
    def to_torch_ir(*given: Any, **options: Any) -> Any:
        graph = stock(*given, **options)
        if recordings:
            recordings[-1].phase = "aot"
            _show_sharing(graph, recordings[-1])
        return graph

    return to_torch_ir


def _show_sharing(graph: Any, recording: Recording) -> None:
    """Which memory values share, and how they lie in it, matters where something is written to."""
    written = any(t._version > 0 for t in _values(graph))
    recording.writes = written or any(n.kwargs.get("out") for n in graph.graph.nodes)
    for record in recording.nodes:
        record.sharing_shows = record.strides_show = recording.writes


def _values(graph: Any) -> list[torch.Tensor]:
    found = [n.meta.get("example_value", n.meta.get("val")) for n in graph.graph.nodes]
    return [t for t in concrete.leaves(found) if isinstance(t, torch.Tensor)]


@repair(
    Place("torch.backends.mha:set_fastpath_enabled(False)", lambda: (torch.backends.mha, "set_fastpath_enabled")),
    scope="export",
    phase="export",
    kind="meaning",
    by_itself=True,
    symptom="An exported transformer has a call that nothing can decompose or compile.",
    cause="nn/modules/transformer.py has one fused call for inference.",
    cure="The call is not made.",
    goes="when torch.export does so",
)
@contextlib.contextmanager
def plain_attention() -> Iterator[None]:
    """torch.nn's transformer has one fused call for inference, which nothing can decompose or compile."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _every_dim(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return dict.fromkeys(range(value.dim()), torch.export.Dim.AUTO)
    return None


_MARKS = ("_dynamo_weak_dynamic_indices", "_dynamo_dynamic_indices")


@contextlib.contextmanager
def _unmarked(tree: Any) -> Iterator[None]:
    """`Dim.AUTO` leaves a mark on the tensors of the example, which a later `torch.compile` would see."""
    tensors = [t for t in concrete.leaves(tree) if isinstance(t, torch.Tensor)]
    before = [{m: set(getattr(t, m)) for m in _MARKS if hasattr(t, m)} for t in tensors]
    try:
        yield
    finally:
        for tensor, marks in zip(tensors, before, strict=True):
            for mark in _MARKS:
                if mark in marks:
                    setattr(tensor, mark, marks[mark])
                elif hasattr(tensor, mark):
                    delattr(tensor, mark)


def input_names(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """Each leaf of the arguments in the words of the user: `x`, `batch["mask"]`, `xs[0]`; in torch's own order."""
    try:
        parameters = inspect.signature(module.forward).parameters.values()
        names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    except (TypeError, ValueError):
        names = []
    found = []
    for path, _ in pytree.tree_flatten_with_path((args, kwargs))[0]:
        which, first, *rest = path
        if which.idx == 1:
            root = str(first.key)
        else:
            root = names[first.idx] if first.idx < len(names) else f"args[{first.idx}]"
        found.append(root + pytree.keystr(tuple(rest)))
    return found


def as_module(fn: Any) -> torch.nn.Module:
    """A module whose forward is `fn`; a module stays itself."""
    if isinstance(fn, torch.nn.Module):
        return fn
    module = torch.nn.Module()
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        module.owner = owner  # its parameters are the program's
    try:
        inspect.signature(fn)
        module.forward = fn
    except (TypeError, ValueError):  # a builtin that does not tell
        module.forward = lambda *args, **kwargs: fn(*args, **kwargs)
    return module


def dense(tree: Any) -> Any:
    """The arguments, each tensor without gaps: an exported program is for inputs laid out as its example is."""

    def leaf(value: Any) -> Any:
        gaps = isinstance(value, torch.Tensor) and value.layout is torch.strided and not _is_dense(value)
        return value.contiguous() if gaps else value

    return pytree.tree_map(leaf, tree)


def _is_dense(tensor: torch.Tensor) -> bool:
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n != 1):
        if stride != expected:
            return tensor.numel() == 0
        expected *= size
    return True
