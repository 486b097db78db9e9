"""Hooks that watch compilations, graph breaks, guards and graph calls, and change none.

Owns the hooks: around the compilation of a frame, the report of a graph break, the text of a guard, the call of a
compiled graph, and `torch.compile`. Each is a patch of one name, undone at the end; an exception in here ends in a
`Trouble`, never in the program. What the events mean is the doctor's business.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import os
import platform
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._dynamo.exc as dynamo_exc
from torch._guards import CompileContext, TracingContext

from anyshape._torch.observe import descriptions, eager_calls, failed_guards
from anyshape._torch.repairs import registry
from anyshape._torch.repairs.registry import Place, repair
from anyshape.doctor import guard_text
from anyshape.doctor.event_log import Sink
from anyshape.doctor.events import VERSION, Calls, Code, Compilation, GraphBreak, Reason, Run, Trouble

_LIMIT = "recompile limit exceeded"
_RAISING = "FailOnRecompileLimitHit"  # with fullgraph: the call raised, and nothing ran eagerly
_MOST_CODE = 200_000  # characters of a graph or of generated code
_FLUSH_SECONDS = 0.5
_MOST_STACKS = 50_000


def _entries(bound: dict[str, Any]) -> Iterator[Any]:
    """The programs that exist of a frame: a list, or (torch 2.11) the first of a chain."""
    listed = bound.get("cache_entries_for_reasons")
    listed = bound.get("cache_entries") if listed is None else listed
    yield from listed or ()
    entry = bound.get("cache_entry") if listed is None else None
    while entry is not None:
        yield entry
        entry = entry.next


class Observer:
    """Turns what the hooks see into events. One is active in a process at a time."""

    def __init__(self, sink: Sink, *, sample: float = 1.0, most_sizes: int = 10_000, code: bool = False) -> None:
        self._sink = sink
        self._keeps_code = code
        self.flushing: list[Callable[[], None]] = []  # what else is to be said when the counts are written
        self._began = time.time()
        self._stacks: dict[str, Any] = {}
        self._symbols: dict[str, dict[str, str]] = {}  # of the last DDE, by compile id
        self._pins: dict[tuple[str, str, int], Any] = {}  # sizes that a trace fixed, and the line that did it
        self._sites: dict[types.CodeType, tuple[str, int, str]] = {}
        self._served: list[tuple[str, tuple[str, ...], dict[Any, int]]] = []  # calls by sizes, for each program
        self._limited = eager_calls.Limited()
        self._flushed = self._began
        self._every = max(1, round(1 / sample)) if sample > 0 else 0
        self._most_sizes = most_sizes

    # -- events ------------------------------------------------------------------------------------------------

    def emit(self, event: Any) -> None:
        for watcher in list(_watchers) if _hooking is self else [self]:
            with contextlib.suppress(Exception):  # a full disk is not the program's business
                watcher._sink(event)

    def note(self, event: Any) -> None:
        """What this observer alone has to say: others hear it from where it came."""
        with contextlib.suppress(Exception):
            self._sink(event)

    def trouble(self, where: str, error: BaseException) -> None:
        text = f"{where}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        self.emit(Trouble(text, pid=os.getpid()))

    def start(self, command: tuple[str, ...]) -> None:
        python = platform.python_version()
        self.emit(Run(VERSION, command, str(torch.__version__), python, os.getpid(), self._began))

    def now(self) -> float:
        return time.time() - self._began

    def flush(self) -> None:
        """Write the calls that were counted since the last time."""
        for say in self.flushing:
            say()
        if _hooking is not None and _hooking is not self:
            return _hooking.flush()
        self._flushed = time.time()
        for compile_id, names, counts in list(self._served):
            for key in list(counts):
                count = counts.pop(key, 0)
                sizes = tuple((n, tuple(int(d) for d in size)) for n, size in zip(names, key, strict=False))
                self._limited.served(compile_id, count * self._every)
                self.emit(Calls(compile_id, sizes, count * self._every, self.now(), os.getpid()))
        for made in self._limited.events(self.now()):
            self.emit(made)
        return None

    # -- hooks -------------------------------------------------------------------------------------------------

    def compilation(self, original: Callable[..., Any], bound: dict[str, Any], run: Callable[[], Any]) -> Any:
        """Around the compilation of one frame."""
        try:
            about = self._about(bound)
        except Exception as error:
            self.trouble("a compilation", error)
            return run()
        began = time.perf_counter()
        start = self.now()
        outcome, text, guards = "compiled", "", 0
        try:
            result = run()
        except BaseException as error:
            outcome, text = _failure(error)
            raise
        else:
            guarded = getattr(result, "guarded_code", None)
            if guarded is None:
                outcome, text = "skipped", str(getattr(result, "skip_reason", None) or "")
            else:
                guards = failed_guards.count(guarded)
            return result
        finally:
            seconds = time.perf_counter() - began
            try:
                symbols = self._symbols.pop(about["id"], {}) if outcome == "failed" else {}
                self.emit(Compilation(
                    symbols=symbols, start=start, seconds=seconds, outcome=outcome, error=text[:4000],
                    guards=guards, **about,
                ))  # fmt: skip
                if outcome == "limit":
                    self.flush()  # what was served until here does not count against the calls that come
                    self._limited.add(about, bound["code"], raised=_RAISING in text)
            except Exception as error:
                self.trouble("a compilation", error)

    def _about(self, bound: dict[str, Any]) -> dict[str, Any]:
        code = bound["code"]
        root = descriptions.root()
        site = self._sites.get(code) or self._sites.get(descriptions.code_of(root)) or ("", 0, "")
        call = descriptions.call()
        frame_locals = bound.get("locals") or {}
        return {
            "id": str(bound["compile_id"]),
            "name": code.co_name,
            "file": code.co_filename,
            "line": code.co_firstlineno,
            "module": descriptions.module_name((bound.get("globals") or {}).get("__name__", "")),
            "qualname": getattr(code, "co_qualname", code.co_name),
            "by": "anyshape" if _by_anyshape() else "stock",
            "reasons": tuple(self._reasons(bound, frame_locals)),
            "freevars": tuple(code.co_freevars),
            "arguments": descriptions.arguments(frame_locals),
            "call_file": call[0],
            "call_line": call[1],
            "call_span": call[2],
            "parameters": code.co_varnames[: code.co_argcount + code.co_kwonlyargcount],
            "root": descriptions.qualified(root)[1],
            "root_module": descriptions.qualified(root)[0],
            "compile_file": site[0],
            "compile_line": site[1],
            "dynamic": site[2],
            "thread": threading.current_thread().name,
            "pid": os.getpid(),
        }

    def _reasons(self, bound: dict[str, Any], frame_locals: dict[str, Any]) -> Iterator[Reason]:
        for entry in _entries(bound):
            try:
                for reason in failed_guards.failed(entry, frame_locals, self._stacks):
                    pin = self._pins.get((reason.entry, reason.source, -1 if reason.dim is None else reason.dim))
                    yield reason if pin is None or reason.kind != "size" else failed_guards.pinned(reason, *pin)
            except Exception as error:
                self.trouble("the reasons of a compilation", error)

    def guard_text(self, text: str, guard: Any) -> None:
        stack = getattr(guard, "user_stack", None)
        if stack:
            if len(self._stacks) >= _MOST_STACKS:
                self._stacks.clear()  # a server that runs for days; the lines of older guards are not known any more
            self._stacks[text] = stack

    def data_dependent(self, shape_env: Any) -> None:
        self._symbols[str(CompileContext.current_compile_id())] = descriptions.symbols(shape_env)

    def replaced(self, shape_env: Any, symbol: Any, value: Any) -> None:
        """A symbol became a number, or another symbol: the sizes it stands for are tied from here on."""
        if not getattr(value, "is_number", False):
            return
        compile_id = str(CompileContext.current_compile_id())
        frame = failed_guards.users_frame(TracingContext.extract_stack())
        for text in descriptions.sources(shape_env, symbol):
            for source, dim in guard_text.size_sources(text):
                if frame is not None:
                    place = (frame.filename, frame.lineno or 0, (frame.line or "").strip())
                    self._pins.setdefault((compile_id, source, dim), place)

    def graph_break(self, reason: str, error: Any, code_options: Any) -> None:
        frame = failed_guards.users_frame(getattr(error, "real_stack", None) or ())
        where = (frame.filename, frame.lineno or 0, frame.line or "") if frame is not None else None
        if where is None:
            where = (code_options["co_filename"], code_options["co_firstlineno"], "")
        compile_id = CompileContext.current_compile_id()
        self.emit(GraphBreak(
            str(compile_id), where[0], where[1], descriptions.with_cause(reason, error), where[2].strip(),
            self._symbols.pop(str(compile_id), {}), self.now(), os.getpid(),
        ))  # fmt: skip

    def compiled_by(self, fn: Any, context: Any) -> None:
        """Remember the line that said `torch.compile` for this function or module."""
        code = descriptions.code_of(fn)
        if code is not None:
            file, line = descriptions.caller()
            dynamic = getattr(context, "_dynamic", None)
            self._sites[code] = (file, line, "" if dynamic is None else f"dynamic={dynamic}")

    def called(self, frame: Any) -> None:
        """A call of something compiled begins. It is asked about only after a limit was reached."""
        if self._limited:
            self._limited.called(frame)

    def code(self, kind: str, text: Callable[[], Any]) -> None:
        """A graph or generated code, where it is to be kept."""
        if any(w._keeps_code for w in list(_watchers)):
            made = Code(str(CompileContext.current_compile_id()), kind, str(text())[:_MOST_CODE], os.getpid())
            for watcher in list(_watchers):
                if watcher._keeps_code:
                    watcher.note(made)

    def counted(self, graph: Any, compiled: Any) -> Any:
        """The compiled graph, counting its calls by the sizes of what it is given."""
        self.code("graph", lambda: graph.print_readable(print_output=False))
        owner: Any = getattr(compiled, "__self__", None)
        if hasattr(owner, "real_recompile") and hasattr(owner, "forward"):
            owner.real_recompile()  # as torch does next, when it finds the module's own method here
            compiled = owner.forward
        if not self._every or not isinstance(compiled, types.FunctionType | types.MethodType | functools.partial):
            return compiled
        inputs = descriptions.sized_inputs(graph)
        counts: dict[Any, int] = {}
        names = tuple(name for name, _ in inputs)
        self._served.append((str(CompileContext.current_compile_id()), names, counts))
        return self._counting(compiled, tuple(index for _, index in inputs), counts)

    def _counting(self, compiled: Callable[..., Any], places: tuple[int, ...], counts: dict[Any, int]) -> Any:
        """The one thing that runs at every call, so it does little: a lookup by sizes, and now and then the clock."""
        every, ticks, most = self._every, itertools.count(1), self._most_sizes

        def call(*args: Any) -> Any:
            tick = next(ticks)
            if tick % every == 0:
                try:
                    sizes = tuple([args[i].shape for i in places])
                    known = counts.get(sizes)
                    if known is None and len(counts) >= most:
                        sizes, known = (), counts.get(())
                    counts[sizes] = 1 if known is None else known + 1
                    if tick & 63 == 0 and time.time() - self._flushed > _FLUSH_SECONDS:
                        self.flush()
                except Exception as error:
                    self.trouble("a call", error)
            return compiled(*args)

        functools.update_wrapper(call, compiled)
        return call

    def after_fork(self) -> None:
        """The counts so far are the parent's to write."""
        for _, _, counts in self._served:
            counts.clear()
        self._limited.clear()


_installing = threading.Lock()
_installed: contextlib.ExitStack | None = None
_hooking: Observer | None = None  # whose hooks are in place
_watchers: list[Observer] = []  # all who hear what it sees


@contextlib.contextmanager
def watching(observer: Observer) -> Iterator[None]:
    """Every hook in place, for as long as anyone watches. Observers that overlap share one set of hooks."""
    global _installed, _hooking
    with _installing:
        _watchers.append(observer)
        if _installed is None:
            _installed, _hooking = _install(observer), observer
    try:
        yield
    finally:
        with _installing:
            observer.flush()
            _watchers.remove(observer)
            if not _watchers:
                _installed.close()
                _installed = _hooking = None


def _install(observer: Observer) -> contextlib.ExitStack:
    for place in hooked():
        if not place.is_there:
            observer.trouble("a hook", AttributeError(f"this torch has no {place.text}"))
    stack = contextlib.ExitStack()
    stack.enter_context(registry.entered("observe", observer=observer))
    return stack


def hooked() -> list[Place]:
    """What is watched of torch."""
    return [place for one in registry.of_scope("observe") for place in one.places]


def _after_fork() -> None:
    if _hooking is not None:
        _hooking.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


_WATCHING: Any = {
    "scope": "observe",
    "phase": "capture",
    "kind": "watch",
    "absent": "skip",
    "apart": False,
    "symptom": "The doctor does not see what torch compiles.",
    "cause": "There is no place in torch where one could ask.",
    "goes": "with the doctor, or when torch tells",
}


@repair(
    "torch._dynamo.convert_frame:_compile",
    **_WATCHING,
    cure="Told: each compilation, what came of it and what it cost.",
)
def _compile_hook(stock: Callable[..., Any], *, observer: Observer) -> Callable[..., Any]:
    signature = inspect.signature(stock)

    @functools.wraps(stock)
    def compile_frame(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = dict(signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            observer.trouble("a compilation", error)
            return stock(*args, **kwargs)
        if "skip" in kwargs:
            kwargs["skip"] += 2  # torch leaves out as many frames as it knows of; two more stand here
        return observer.compilation(stock, bound, lambda: stock(*args, **kwargs))

    return compile_frame


@repair(
    "torch._dynamo.symbolic_convert:InstructionTranslatorBase.log_graph_break",
    **_WATCHING,
    cure="Told: each graph break, with its reason.",
)
def _break_hook(stock: Callable[..., Any], *, observer: Observer) -> Callable[..., Any]:
    signature = inspect.signature(stock)

    @functools.wraps(stock)
    def log_graph_break(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs).arguments
            error = bound.get("exc")
            if not getattr(error, "logged", False):
                observer.graph_break(bound.get("reason", ""), error, bound.get("code_options", {}))
        except Exception as error:
            observer.trouble("a graph break", error)
        return stock(*args, **kwargs)

    return log_graph_break


@repair(
    "torch._dynamo.guards:get_verbose_code_part", **_WATCHING, cure="Told: the text of each guard, with its tensor."
)
def _text_hook(stock: Callable[..., str], *, observer: Observer) -> Callable[..., str]:
    @functools.wraps(stock)
    def get_verbose_code_part(code_part: str, guard: Any) -> str:
        text = stock(code_part, guard)
        with contextlib.suppress(Exception):
            observer.guard_text(text, guard)
        return text

    return get_verbose_code_part


@repair(
    "torch._dynamo.output_graph:OutputGraph.call_user_compiler",
    **_WATCHING,
    cure="Told: each graph, and the calls of it.",
)
def _backend_hook(stock: Callable[..., Any], *, observer: Observer) -> Callable[..., Any]:
    @functools.wraps(stock)
    def call_user_compiler(self: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
        compiled = stock(self, graph, *args, **kwargs)
        try:
            return observer.counted(graph, compiled)
        except Exception as error:
            observer.trouble("a graph", error)
            return compiled

    return call_user_compiler


@repair(
    "torch._dynamo.eval_frame:_TorchDynamoContext.__call__",
    **_WATCHING,
    cure="Told: which function was compiled, and where.",
)
def _context_hook(stock: Callable[..., Any], *, observer: Observer) -> Callable[..., Any]:
    @functools.wraps(stock)
    def call_context(self: Any, fn: Any) -> Any:
        with contextlib.suppress(Exception):
            observer.compiled_by(fn, self)
        return stock(self, fn)

    return call_context


@repair(
    "torch.fx.experimental.symbolic_shapes:ShapeEnv._make_data_dependent_error",
    **_WATCHING,
    cure="Told: each data-dependent error.",
)
def _dde_hook(stock: Callable[..., Any], *, observer: Observer) -> Callable[..., Any]:
    @functools.wraps(stock)
    def make_data_dependent_error(self: Any, *args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(Exception):
            observer.data_dependent(self)
        return stock(self, *args, **kwargs)

    return make_data_dependent_error


@repair(
    "torch.fx.experimental.symbolic_shapes:ShapeEnv._set_replacement",
    **_WATCHING,
    cure="Told: sizes that a trace fixes, and the line that does it.",
)
def _replacement_hook(stock: Callable[..., Any], *, observer: Observer) -> Callable[..., Any]:
    @functools.wraps(stock)
    def set_replacement(self: Any, symbol: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(Exception):
            observer.replaced(self, symbol, value)
        return stock(self, symbol, value, *args, **kwargs)

    return set_replacement


@repair("torch._dynamo.eval_frame:_callback_from_stance", **_WATCHING, cure="Told: calls that are not compiled.")
def _stance_hook(stock: Callable[..., Any], *, observer: Observer) -> Callable[..., Any]:
    @functools.wraps(stock)
    def callback_from_stance(*args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(Exception):
            observer.called(sys._getframe(1))
        return stock(*args, **kwargs)

    return callback_from_stance


@repair(
    "torch.fx.experimental.symbolic_shapes:uninteresting_files",
    **_WATCHING,
    cure="Told: which of torch's lines asked, and none of these.",
)
def _files_hook(stock: Callable[..., Any], *, observer: Observer) -> Callable[..., Any]:
    """Torch says which of its lines asked, leaving out those that are of no interest; lines in here are of none."""

    @functools.wraps(stock)
    def uninteresting_files() -> Any:
        return stock() | {__file__}

    return uninteresting_files


@repair(
    "torch._inductor.output_code:CompiledFxGraph.post_compile",
    **_WATCHING,
    cure="Told: the code that Inductor generates.",
)
def _output_hook(stock: Callable[..., Any], *, observer: Observer) -> Callable[..., Any]:
    @functools.wraps(stock)
    def post_compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(Exception):
            observer.code("output", lambda: self.source_code)
        return stock(self, *args, **kwargs)

    return post_compile


def _failure(error: BaseException) -> tuple[str, str]:
    text = f"{type(error).__name__}: {error}"
    if not isinstance(error, Exception):
        return "retraced", text  # anyshape gives a capture up on its own; an interrupt is the user's
    if _LIMIT in text or isinstance(error, getattr(dynamo_exc, "FailOnRecompileLimitHit", ())):
        return "limit", text
    return "failed", text


def _by_anyshape() -> bool:
    capture = sys.modules.get("anyshape._torch.capture.capture_scope")
    frame: types.FrameType | None = sys._getframe(1)
    for _ in range(12):
        if frame is None or capture is None:
            return False
        if frame.f_code.co_filename == capture.__file__:
            return True
        frame = frame.f_back
    return False
