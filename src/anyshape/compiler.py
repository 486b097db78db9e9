"""`anyshape.compile`.

Owns the callable that people hold: a function or a module that looks like the one it was made from, with `programs` and
`fallbacks`. What a program is and how a call gets one is the engine's.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import types
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

import torch

from anyshape._torch.capture import capture_scope
from anyshape._torch.compile import cuda_graphs
from anyshape._torch.runtime import compiled_modules, passed_over, process_group, shortcuts
from anyshape._torch.symbolic import shapes_spec
from anyshape.ahead.background import Background
from anyshape.ahead.one_rank import OneRank
from anyshape.declaration import Declaration, spec_file
from anyshape.declaration.entry_check import EntryCheck
from anyshape.declaration.options import read_switches, read_word
from anyshape.engine import shared_layers
from anyshape.engine.engine import Engine, engine_of, observers
from anyshape.errors import NotCompilableError, refuse_deepcopy, refuse_pickle
from anyshape.foundation.option_types import (
    Address,
    Backend,
    Clauses,
    CompileOptions,
    Distributed,
    Hints,
    Layouts,
    Mode,
    OnBranch,
    OnNewBehavior,
    Semantics,
    Shapes,
    Specialize,
)
from anyshape.foundation.reruns import RunAgain, RunEagerly
from anyshape.programs import Program, Variant

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound=torch.nn.Module)
_Owner = TypeVar("_Owner")
_Rest = ParamSpec("_Rest")
_Callable = TypeVar("_Callable", bound=Callable[..., object])

__all__ = ["CompiledFunction", "compile", "observers", "warm_up"]


class CompiledFunction(Generic[P, R]):
    """A function compiled by anyshape. Call it like the original function."""

    def __init__(self, function: Callable[P, R], target: Callable[..., Any], engine: Engine) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._target = target
        self._engine = engine
        self._caller = None if compiled_modules.module_of(function) is None else engine.callers.join(engine.programs)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return self._target(*args, **kwargs)  # type: ignore[no-any-return]
        except RunAgain:
            return self(*args, **kwargs)
        except RunEagerly as told:
            eagerly = told
        # Out here, where an error of the function is its own and nothing else is being handled.
        result = self._function(*args, **kwargs)
        eagerly.say()
        return result

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(
        self: CompiledFunction[Concatenate[_Owner, _Rest], R], instance: _Owner, owner: type | None = None
    ) -> Callable[_Rest, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As a method: `self` is an argument like any other."""
        return self if instance is None else types.MethodType(self, instance)

    @property
    def _torchdynamo_orig_callable(self) -> Callable[..., Any]:
        """Where torch looks for what is under a wrapper: to disable it, or to compile it in another way."""
        return self._function

    @property
    def _torchdynamo_wrapper_id(self) -> int:
        return id(self)

    @property
    def declaration(self) -> Declaration:
        """What was declared."""
        return self._engine.entry_check.declaration if self._engine.entry_check is not None else Declaration()

    @property
    def declared_in(self) -> str | None:
        """The `anyshape.toml` that is in force, if one is."""
        return self._engine.entry_check.declared_in if self._engine.entry_check is not None else None

    @property
    def copies(self) -> dict[str, int]:
        """How often an input was made contiguous because `layout` says so, by path ("" where it is for all)."""
        return dict(self._engine.entry_check.copies) if self._engine.entry_check is not None else {}

    @property
    def programs(self) -> tuple[Program, ...]:
        """What was compiled and is alive."""
        return self._engine.views(self._caller)

    @property
    def fallbacks(self) -> dict[str, int]:
        """How often a call ran eagerly, by reason."""
        return dict(self._engine.fallbacks_of(self._caller))

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Code for sizes that are hot, of all programs."""
        return tuple(v for p in self.programs for v in p.variants)

    def wait(self, timeout: float | None = None) -> bool:
        """Until no variant is being made; False if that takes longer than `timeout` seconds."""
        return self._engine.wait(timeout)

    def __repr__(self) -> str:
        return f"<anyshape-compiled {self._name}>"

    @property
    def _name(self) -> str:
        return str(getattr(self._function, "__qualname__", self._function))

    def __reduce__(self) -> str:
        raise refuse_pickle(self._name)

    def __deepcopy__(self, memo: object) -> Self:
        raise refuse_deepcopy(self._name)


class Decorator(Protocol):
    """`anyshape.compile(...)` without a function: what takes the function."""

    @overload
    def __call__(self, fn: M, /) -> M: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> CompiledFunction[P, R]: ...
    def __call__(self, fn: Callable[..., Any], /) -> Any: ...


SWITCHES = ("fullgraph", "dynamic", "in_place", "frozen", "background", "disable")


@overload
def compile(fn: M, **options: Unpack[CompileOptions]) -> M: ...
@overload
def compile(fn: Callable[P, R], **options: Unpack[CompileOptions]) -> CompiledFunction[P, R]: ...
@overload
def compile(fn: None = None, *, model: M, **options: Unpack[CompileOptions]) -> M: ...
@overload
def compile(fn: None = None, *, model: Callable[P, R], **options: Unpack[CompileOptions]) -> CompiledFunction[P, R]: ...
@overload
def compile(fn: None = None, **options: Unpack[CompileOptions]) -> Decorator: ...
def compile(
    fn: Callable[..., Any] | None = None,
    *,
    model: Callable[..., Any] | None = None,
    shapes: Shapes | None = None,
    where: Clauses | None = None,
    layout: Layouts | None = None,
    hints: Hints | None = None,
    specialize: Specialize | None = None,
    semantics: Semantics = "eager",
    on_new_behavior: OnNewBehavior = "compile",
    on_branch: OnBranch = "error",
    frozen: bool = False,
    background: bool = False,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Backend | None = None,
    mode: Mode | None = None,
    options: Mapping[str, object] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    in_place: bool = False,
    distributed: Distributed = "every-rank",
    artifacts: Address | None = None,
) -> Any:
    """Compile a function or module once, for every size it is called with.

    A drop-in replacement for `torch.compile`. It is also a decorator, with or without arguments.

    Args:
        fn: A function or an `nn.Module`.
        shapes: Named sizes: `{"x": "batch seq 512"}`. A number is static. The same name means the same size.
        where: Invariants of names: `["1 <= batch <= 64", "seq % 8 == 0"]`. They are checked once for each new size.
        layout: "contiguous", "dense", "example" or "any"; for all tensors, or for those named in a dict.
        hints: Typical sizes, `{"batch": 16}`, for autotuning. The solver chooses missing hints.
        specialize: Sizes that get static code, compiled in the background: "hot" (sizes that come often, the
            default), "buckets" (ranges of sizes, if there are many and none comes often), clauses such as
            `["batch == 1"]`, or "never".
        semantics: "eager" equals eager for every size. "oblivious" compiles one program without guards on
            sizes. Its assumptions are asserted at run time.
        on_new_behavior: What happens to a call that no program serves: "compile", "eager", or "error".
        on_branch: What happens to your own branch on a size under oblivious semantics: "error", or "break" for a
            graph break.
        frozen: You promise that modules and globals do not change. Calls are then faster: only arguments are checked.
        background: A call that no program serves runs eagerly while another process compiles. Implies `frozen`.
        fullgraph: As in torch.compile: a graph break is an error.
        dynamic: `False` compiles a program for each size, as in torch.compile. Otherwise sizes are dynamic.
        backend: As in torch.compile.
        mode: As in torch.compile.
        options: As in torch.compile.
        name: As in torch.compile.
        disable: As in torch.compile: the function runs eagerly.
        recompile_limit: Limit for programs that differ in something other than sizes.
        isolate_recompiles: Layers of the same class do not share programs.
        in_place: Compile the module itself and return it, like `module.compile()`.
        distributed: "every-rank" compiles on each rank. With "one-rank" one rank compiles, and the others load its
            programs. Implies `frozen`.
        artifacts: With "one-rank", a directory that all ranks see; without it, the process group's store is used.

    Returns:
        The compiled function, with `programs`, `fallbacks` and `variants`; for a module, a module.
    """
    if torch.compiler.is_dynamo_compiling():  # inside of what is compiled already
        return fn if fn is not None else model if model is not None else lambda function: function
    given = {k: v for k, v in locals().items() if k not in ("fn", "model")}
    fn = model if fn is None else fn
    if fn is None:
        return functools.partial(compile, **given)
    if isinstance(fn, CompiledFunction) or compiled_modules.is_compiled(fn):
        if all(given[k] == p.default for k, p in _PARAMETERS.items() if k in given):
            return fn
        fn = fn._function if isinstance(fn, CompiledFunction) else cast(Any, fn)._orig_mod
    compiled_modules.check_callable(fn, asked_by="compile")
    read_switches({name: given[name] for name in SWITCHES})
    if options is not None:
        options = given["options"] = dict(options)  # torch takes nothing else
    if in_place:
        return _compile_in_place(fn, {**given, "in_place": False})
    backend = capture_scope.default_backend() if backend is None else backend
    backend = given["backend"] = "inductor" if backend == "anyshape" else backend  # its name in torch.compile
    one_rank = read_word("distributed", distributed, ("every-rank", "one-rank")) == "one-rank"
    _check_together(backend, mode, options, distributed=distributed, background=background)
    looked_after = process_group.inner_of(fn) if one_rank else None
    if looked_after is not None:  # DDP and FSDP2 do their part around forward
        looked_after.forward = compile(looked_after.forward, **given)
        return fn
    word = isinstance(specialize, str) and specialize in ("never", "buckets")  # says nothing that calls are checked for
    words = {
        "shapes": shapes,
        "where": where,
        "layout": layout,
        "hints": hints,
        "specialize": None if word else specialize,
    }
    entry_check = declared_entry_check(fn, {**words, "semantics": semantics, "on_new_behavior": on_new_behavior})
    guard_filter, options = capture_scope.guard_filter_of(options)

    def new_engine() -> Engine:
        return Engine(
            capture_scope.inner_backend(backend, mode, options, frozen=frozen, name=name),
            fullgraph=fullgraph,
            own_backend=not isinstance(backend, str),
            entry_check=entry_check,
            on_branch=read_word("on_branch", on_branch, ("error", "break")),
            specialize=_specialize(specialize, entry_check, mode, options),
            static=dynamic is False,
            recompile_limit=recompile_limit,
        )

    alone = entry_check is not None or frozen or background or one_rank or isolate_recompiles or disable
    engine = new_engine() if alone else shared_layers.engine_for(fn, given, new_engine)
    install = functools.partial(
        capture_scope.install,
        backend=engine.compile_graph,
        fullgraph=fullgraph,
        capture=engine.capture,
        disable=disable,
        guard_filter=guard_filter,
    )
    target = compiled_modules.begun_again(install(fn))
    start = shortcuts.first_frame(target)
    module = start[1] if start is not None and frozen and isinstance(start[1], torch.nn.Module) else None
    called = getattr(fn, "__qualname__", type(fn).__name__)
    engine.starts_at(start[0].__code__ if start else None, called, frozen=module)
    shortcut = None
    if start is not None and not disable:
        shortcut = shortcuts.Shortcut.to(target, start, engine.serves_alone, frozen=frozen)
    shared = None
    if one_rank and not disable:
        place = None if artifacts is None else os.fsdecode(artifacts)
        shared = OneRank(fn, engine, entry_check=entry_check, mode=mode, options=options, artifacts=place)
    behind = None
    if background and not disable:
        behind = Background(fn, engine, entry_check=entry_check, mode=mode, options=options)
    in_front = [x.around for x in (shortcut, shared, behind, entry_check) if x is not None]
    if entry_check is not None:
        in_front.insert(0, entry_check.remembered)
    if compiled_modules.is_module(fn):
        return compiled_modules.compiled(target, engine, in_front, anew=functools.partial(compile, **given))

    def renewed() -> Callable[..., Any] | None:
        """Installed for a code object of its own, which no mark of torch.compile's is on."""
        twin = passed_over.twin(fn) if compiled_modules.module_of(fn) is None else None
        if twin is None:
            return None
        engine.starts_at(getattr(twin, "__func__", twin).__code__, called)
        return install(twin)  # type: ignore[no-any-return]

    target = engine.settled(target, None if target is fn else renewed)
    for around in in_front:
        target = around(target)
    made = CompiledFunction(fn, target, engine)
    if made._caller is not None:  # layers that are compiled in place share programs, and each shows its own
        made._target = engine.callers.coming_from(made._caller, target)
    return made


_PARAMETERS = inspect.signature(compile).parameters


def _compile_in_place(module: Any, given: dict[str, Any]) -> Any:
    """As `module.compile()` does: the module itself, whose calls are compiled from here on."""
    if not compiled_modules.is_module(module):
        raise NotCompilableError(
            "in_place=True is for modules, whose calls are compiled from then on",
            value=type(module).__name__,
            fix="f = anyshape.compile(fn)",
            code="AS007",
        )
    module._compiled_call_impl = compile(module._call_impl, **given)
    return module


def _check_together(
    backend: Any, mode: str | None, options: dict[str, Any] | None, *, distributed: Any, background: bool
) -> None:
    """Options that exclude each other."""
    if mode is not None and options is not None:
        raise NotCompilableError(
            "mode and options cannot both be given, as in torch.compile",
            value=f"mode={mode!r}, options={options!r}"[:200],
            fix=f"f = anyshape.compile(fn, mode={mode!r})",
            code="AS007",
        )
    one_rank = distributed == "one-rank"
    if one_rank and not (isinstance(backend, str) and backend == "inductor"):
        raise NotCompilableError(
            'distributed="one-rank" shares what Inductor makes',
            value=f"backend={backend!r}",
            fix='f = anyshape.compile(fn, distributed="one-rank")',
            code="AS007",
        )
    if background and (one_rank or not (isinstance(backend, str) and backend == "inductor")):
        raise NotCompilableError(
            "background=True loads what Inductor makes in another process" + (" of this host" if one_rank else ""),
            value=f"distributed={distributed!r}" if one_rank else f"backend={backend!r}",
            fix="f = anyshape.compile(fn, background=True)",
            code="AS007",
        )


def _specialize(given: Any, entry_check: EntryCheck | None, mode: str | None, options: dict[str, Any] | None) -> Any:
    """What was declared; with CUDA graphs each size has a recording of its own already."""
    if given == "never" or cuda_graphs.are_recorded(mode, options):
        return "never"
    if isinstance(given, str) and given == "buckets":
        return given
    return "hot" if entry_check is None else entry_check.declaration.specialize


_UNDECLARED = {"semantics": "eager", "on_new_behavior": "compile", "specialize": "hot"}


def declared_entry_check(fn: Any, words: dict[str, Any]) -> EntryCheck | None:
    """The entry check for what was declared, by the call or by `anyshape.toml`, checked; None where nothing was."""
    given = {k: v for k, v in words.items() if v is not None and not (isinstance(v, str) and v == _UNDECLARED.get(k))}
    entry = _entry(fn)
    if not given and (entry is None or not entry.words):
        return None
    declared_in = str(entry.source.path) if entry is not None and entry.words else None
    words = declared_words({**words, **(entry.words if entry is not None else {}), **given})
    owner = fn if compiled_modules.is_module(fn) else getattr(fn, "__self__", None)
    try:
        signature = inspect.signature(fn.forward if compiled_modules.is_module(fn) else fn)
    except (TypeError, ValueError):  # a builtin that does not tell
        signature = None
    if not given and entry is not None:
        entry_check = EntryCheck(entry.declaration(signature), signature, owner)
    else:
        entry_check = EntryCheck(Declaration.parse(**words, signature=signature), signature, owner)
    entry_check.declared_in = declared_in
    return entry_check


def declared_words(words: dict[str, Any]) -> dict[str, Any]:
    """The words of a declaration; those of torch's ShapesSpec are put into ours."""
    spec = shapes_spec.words(words["shapes"])
    if spec is None:
        return words
    return {**words, **{k: v for k, v in spec.items() if words.get(k) is None or k == "shapes"}}


def _entry(fn: Any) -> spec_file.Entry | None:
    """What `anyshape.toml` says about a callable."""
    spec = spec_file.load()
    if spec is None:
        return None
    named = type(fn) if compiled_modules.is_module(fn) else fn
    module, name = str(getattr(named, "__module__", "")), str(getattr(named, "__qualname__", ""))
    return spec.entry(module, name) or (spec.entry(module, f"{name}.forward") if named is not fn else None)


@contextlib.contextmanager
def warm_up(f: _Callable) -> Iterator[_Callable]:
    """Compile new behaviors inside this block, whatever `on_new_behavior` says."""
    engine = engine_of(f, asked_by="warm_up", fix="anyshape.warm_up(f)")
    engine.warming += 1
    try:
        yield f
    finally:
        engine.warming -= 1
