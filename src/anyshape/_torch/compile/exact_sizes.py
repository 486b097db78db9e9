"""Compiling a captured graph for exact sizes, forward and backward, without a second capture.

Owns how a captured graph gets constants in the place of its free sizes and is compiled once more, without a second
capture, forward and backward; and how calls are timed on a device that runs behind.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sympy
import torch
import torch._dynamo.convert_frame as convert_frame
import torch.fx._symbolic_trace as symbolic_trace
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from anyshape._torch.compile import compile_scope
from anyshape._torch.repairs import registry
from anyshape._torch.repairs.inductor import output_strides
from anyshape._torch.repairs.registry import repair
from anyshape._torch.runtime import call_signature
from anyshape.foundation.call_keys import key_function


@dataclasses.dataclass(frozen=True)
class Master:
    """A captured graph as it was before a backend took it, and the state that it was captured in."""

    graph: Any
    placeholders: tuple[Any, ...]  # what each input was, with its free sizes
    layouts: output_strides.Layouts  # of what it returns
    grad: bool
    inference: bool
    autocast: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, graph: Any) -> Master | None:
        """None where a graph has nothing to specialize, or something that cannot be compiled on its own."""
        values = tuple(n.meta.get("example_value") for n in graph.graph.nodes if n.op == "placeholder")
        if not any(_is_free(v) for v in values) or not all(_is_plain(v) for v in values):
            return None
        return cls(
            torch.fx.GraphModule(graph, copy.deepcopy(graph.graph)),
            values,
            output_strides.of(graph),
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            tuple((d, torch.get_autocast_dtype(d)) for d in ("cpu", "cuda") if torch.is_autocast_enabled(d)),
        )

    @property
    def device(self) -> str:
        devices = {v.device.type for v in self.placeholders if isinstance(v, torch.Tensor)}
        return "cuda" if "cuda" in devices else "cpu"

    def key(self) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
        """Sizes and strides of the inputs that have free ones, and the numbers."""
        return key_function(self.key_parts())

    def key_parts(self) -> tuple[str, ...]:
        """The expressions of a key."""
        parts = []
        for i, value in enumerate(self.placeholders):
            if isinstance(value, torch.Tensor) and _is_free(value):
                parts.append(f"*a[{i}].shape, *a[{i}].stride()")
            elif not isinstance(value, torch.Tensor):
                parts.append(f"a[{i}]")
        return tuple(parts)

    def places(self) -> dict[Any, int]:
        """Where each free size stands in a key, by the symbol it was given, whatever it is known to equal since."""
        found: dict[Any, int] = {}
        for value, at in self.in_key():
            numbers = value.shape if isinstance(value, torch.Tensor) else (value,)
            for i, number in enumerate(numbers):
                if isinstance(number, (torch.SymInt, torch.SymFloat)):
                    found.setdefault(number.node._expr, at + i)
        return found

    def in_key(self) -> Iterator[tuple[Any, int]]:
        """The inputs that a key has something of, and where that begins: of a tensor sizes and strides, or a number."""
        at = 0
        for value in self.placeholders:
            if not isinstance(value, torch.Tensor):
                yield value, at
                at += 1
            elif _is_free(value):
                yield value, at
                at += 2 * value.dim()

    def job(self, backend: Any, args: Sequence[Any]) -> Callable[[], Callable[..., Any]]:
        """What compiles the graph for inputs like `args`, of which nothing but sizes and strides is kept."""
        seen = [(tuple(a.shape), a.stride()) if isinstance(a, torch.Tensor) else a for a in args]
        return lambda: self._compile(backend, seen)

    def _compile(self, backend: Any, seen: Sequence[Any]) -> Callable[..., Any]:
        def inputs() -> list[Any]:
            mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
            pairs = zip(self.placeholders, seen, strict=True)
            return [stand_in(mode, v, *s) if isinstance(v, torch.Tensor) else s for v, s in pairs]

        values = self._values(seen)

        def number(given: Any) -> int | None:
            if not isinstance(given, torch.SymInt):
                return int(given)
            expr = given.node.expr.xreplace(values)
            return int(expr) if expr.is_number else None

        with output_strides.kept(self.layouts, number):
            return self.compiled(backend, inputs, [None if isinstance(s, tuple) else s for s in seen])

    def _values(self, seen: Sequence[Any]) -> dict[Any, Any]:
        """What free sizes are, by symbol, in inputs that look like `seen`."""
        found: dict[Any, Any] = {}
        for value, given in zip(self.placeholders, seen, strict=True):
            sizes = zip(value.shape, given[0], strict=True) if isinstance(value, torch.Tensor) else [(value, given)]
            found.update((n.node._expr, sympy.Integer(size)) for n, size in sizes if isinstance(n, torch.SymInt))
        return found

    def compiled(self, backend: Any, inputs: Callable[[], list[Any]], baked: Sequence[Any]) -> Callable[..., Any]:
        """The graph compiled once more, for other inputs; numbers in `baked` take the place of placeholders."""
        graph = torch.fx.GraphModule(self.graph, copy.deepcopy(self.graph.graph))
        for node, value in zip(graph.graph.find_nodes(op="placeholder"), baked, strict=True):
            if value is not None:
                _bake(node, value)
        for node in graph.graph.nodes:
            for name in ("example_value", "val", "unbacked_bindings"):
                node.meta.pop(name, None)
        graph.recompile()
        with convert_frame.compile_lock, self._state(), compile_scope.scope(), _untold_to_others():
            return backend(graph, inputs())  # type: ignore[no-any-return]

    def _state(self) -> contextlib.AbstractContextManager[None]:
        """Grad mode and autocast belong to a thread: the one that compiles gets those of the one that captured."""
        return call_signature.in_thread_state(self.grad, self.inference, self.autocast)


def stand_in(mode: FakeTensorMode, value: torch.Tensor, sizes: Sequence[Any], strides: Sequence[Any]) -> torch.Tensor:
    """An input like `value`, of other sizes."""
    with mode, torch.no_grad():
        made = torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
    return made.requires_grad_(value.requires_grad)


@contextlib.contextmanager
def _untold_to_others() -> Iterator[None]:
    """Traces of this thread are none for others."""
    with registry.entered("variant"):
        yield


@repair(
    "torch.fx._symbolic_trace:Tracer.create_args_for_root",
    scope="variant",
    phase="run time",
    broken="2.11-2.13",
    symptom="Compiled calls of other threads refuse to run while a variant is compiled.",
    cause="fx/_symbolic_trace.py:_is_fx_tracing_flag, that a graph is being traced, is one for all threads.",
    cure="Traces of this thread take it back as soon as they have set it.",
    goes="with torch 2.13",
    needed=lambda: hasattr(symbolic_trace, "_is_fx_tracing_flag"),
)
def create_args_for_root(stock: Any) -> Any:
    def create_args(self: Any, *args: Any, **kwargs: Any) -> Any:
        symbolic_trace._is_fx_tracing_flag = False
        return stock(self, *args, **kwargs)

    return create_args


def _bake(placeholder: Any, value: Any) -> None:
    for user in list(placeholder.users):
        replace = lambda a: value if a is placeholder else a
        user.args = torch.fx.node.map_arg(user.args, replace)
        user.kwargs = torch.fx.node.map_arg(user.kwargs, replace)


def _is_free(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return any(isinstance(n, torch.SymInt) for n in (*value.shape, *value.stride()))
    return isinstance(value, (torch.SymInt, torch.SymFloat))


def _is_plain(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return type(value) in (FakeTensor, torch.nn.Parameter) and value.layout is torch.strided
    return isinstance(value, (torch.SymInt, int))


class WallClock:
    """For devices that are done when a call returns."""

    def __init__(self) -> None:
        self._took: list[float] = []

    def start(self) -> float:
        return time.perf_counter()

    def stop(self, started: float) -> None:
        self._took.append(time.perf_counter() - started)

    def median(self) -> float | None:
        return statistics.median(self._took) if self._took else None


class EventClock:
    """For a GPU, which runs behind: its own time, read when it has got there."""

    def __init__(self) -> None:
        self._events: list[tuple[Any, Any]] = []

    def start(self) -> Any:
        if torch.cuda.is_current_stream_capturing():
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def stop(self, started: Any) -> None:
        if started is not None:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._events.append((started, event))

    def median(self) -> float | None:
        if not self._events or torch.cuda.is_current_stream_capturing() or not self._events[-1][1].query():
            return None
        return statistics.median(a.elapsed_time(b) / 1e3 for a, b in self._events)


class QueuedClock(EventClock):
    """For comparing kernels: a GPU that waits for its next kernel would be timed waiting.

    It is given something to do first, for about as long as the call takes on the CPU: by then the call's kernels are
    all in its queue.
    """

    _LONGEST = 2_000_000  # cycles, about a millisecond
    _cycles = 100_000  # of all such clocks: how long calls take on the CPU is a matter of the machine

    def start(self) -> Any:
        if not torch.cuda.is_current_stream_capturing():
            torch.cuda._sleep(QueuedClock._cycles)
        return super().start()

    def stop(self, started: Any) -> None:
        super().stop(started)
        if started is not None and started.query():  # the GPU was there before the call had ended
            QueuedClock._cycles = min(2 * QueuedClock._cycles, self._LONGEST)


def clock(device: str) -> type[WallClock] | type[EventClock]:
    """Of what calls take of the time of who makes them."""
    return EventClock if device == "cuda" else WallClock


def trial_clock(device: str) -> type[WallClock] | type[EventClock]:
    """Of what code takes that is compared with other code."""
    return QueuedClock if device == "cuda" else WallClock
