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
from collections.abc import Callable, Iterator
from typing import Any

import torch

from anyshape import regions, spec_file
from anyshape._torch import capture, cuda_graphs, modules, process_group, shortcuts, specs
from anyshape.ahead.background import Background
from anyshape.ahead.one_rank import OneRank
from anyshape.declaration import Declaration
from anyshape.declaration.options import read_word
from anyshape.door import Door
from anyshape.engine import Engine, RunAgain, RunEagerly, engine_of, observers
from anyshape.errors import NotCompilableError, refuse_deepcopy, refuse_pickle
from anyshape.programs import Program, Variant

__all__ = ["CompiledFunction", "compile", "observers", "warm_up"]


class CompiledFunction:
    """A function compiled by anyshape. It is called as the function is."""

    def __init__(self, function: Callable[..., Any], target: Callable[..., Any], engine: Engine) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._target = target
        self._engine = engine

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._target(*args, **kwargs)
        except RunAgain:
            return self(*args, **kwargs)
        except RunEagerly as told:
            eagerly = told
        # Out here, where an error of the function is its own and nothing else is being handled.
        result = self._function(*args, **kwargs)
        eagerly.say()
        return result

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
        return self._engine.door.declaration if self._engine.door is not None else Declaration()

    @property
    def declared_in(self) -> str | None:
        """The `anyshape.toml` that is in force, if one is."""
        return self._engine.door.declared_in if self._engine.door is not None else None

    @property
    def copies(self) -> dict[str, int]:
        """How often an input was made contiguous because `layout` says so, by path ("" where it is for all)."""
        return dict(self._engine.door.copies) if self._engine.door is not None else {}

    @property
    def programs(self) -> tuple[Program, ...]:
        """What was compiled and is alive."""
        return self._engine.views()

    @property
    def fallbacks(self) -> dict[str, int]:
        """How often a call ran eagerly, by reason."""
        return dict(self._engine.fallbacks)

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

    def __reduce__(self) -> Any:
        raise refuse_pickle(self._name)

    def __deepcopy__(self, memo: Any) -> Any:
        raise refuse_deepcopy(self._name)


def compile(
    fn: Any = None,
    *,
    model: Any = None,
    shapes: Any = None,
    where: Any = None,
    layout: Any = None,
    hints: Any = None,
    specialize: Any = None,
    semantics: Any = "eager",
    on_new_behavior: Any = "compile",
    on_branch: Any = "error",
    frozen: bool = False,
    background: bool = False,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    in_place: bool = False,
    distributed: Any = "every-rank",
    artifacts: Any = None,
) -> Any:
    """Compile a function or module once for every size it is called with.

    Drop-in for `torch.compile`; also a decorator, with or without arguments. `backend`, `mode`, `options`, `name`,
    `fullgraph` and `disable` mean what they mean there. So does `dynamic=False`: every size has a program of its own
    then. `recompile_limit` is how many programs may differ in one thing other than sizes. Layers of one class share
    their programs unless `isolate_recompiles` is set. With `in_place` a module is given back itself, and its calls are
    compiled from then on, as by `module.compile()`.
    `shapes` and the options after it declare what is known of sizes and layouts (see the reference); `on_branch` says
    what becomes of your own branch on a size under oblivious semantics: "error", or "break" for a graph break.
    `specialize` says which sizes get code of their own, made in the background: those that are "hot", those that a
    clause names (`["batch == 1"]`), or "never" any. `frozen` promises that modules and globals do not change: only the
    arguments are looked at then, not all that torch guards. With `background` a call that no program serves runs
    eagerly while a process of its own compiles; it promises what `frozen` does.
    `distributed="one-rank"` lets one rank of a job compile each behaviour and the others load it, through the process
    group's store or the directory `artifacts`; it promises what `frozen` does.
    """
    if torch.compiler.is_dynamo_compiling():  # inside of what is compiled already
        return fn if fn is not None else model if model is not None else lambda function: function
    given = {k: v for k, v in locals().items() if k not in ("fn", "model")}
    fn = model if fn is None else fn
    if fn is None:
        return functools.partial(compile, **given)
    if isinstance(fn, CompiledFunction) or modules.is_compiled(fn):
        if all(given[k] == p.default for k, p in _PARAMETERS.items() if k in given):
            return fn
        fn = fn._function if isinstance(fn, CompiledFunction) else fn._orig_mod
    if not callable(fn):
        raise NotCompilableError(
            f"anyshape.compile takes a function or a module, not {type(fn).__name__}",
            value=repr(fn)[:80],
            fix="f = anyshape.compile(fn)",
        )
    if in_place:
        return _compile_in_place(fn, {**given, "in_place": False})
    backend = given["backend"] = capture.default_backend() if backend is None else backend
    one_rank = read_word("distributed", distributed, ("every-rank", "one-rank")) == "one-rank"
    _check_together(backend, mode, options, distributed=distributed, background=background)
    looked_after = process_group.inner_of(fn) if one_rank else None
    if looked_after is not None:  # DDP and FSDP2 do their part around forward
        looked_after.forward = compile(looked_after.forward, **given)
        return fn
    never = isinstance(specialize, str) and specialize == "never"  # says nothing of sizes, so there is nothing to check
    words = {
        "shapes": shapes,
        "where": where,
        "layout": layout,
        "hints": hints,
        "specialize": None if never else specialize,
    }
    door = declared_door(fn, {**words, "semantics": semantics, "on_new_behavior": on_new_behavior})
    guard_filter, options = capture.guard_filter_of(options)

    def new_engine() -> Engine:
        return Engine(
            capture.inner_backend(backend, mode, options, frozen=frozen, name=name),
            fullgraph=fullgraph,
            own_backend=not isinstance(backend, str),
            door=door,
            on_branch=read_word("on_branch", on_branch, ("error", "break")),
            specialize=_specialize(specialize, door, mode, options),
            static=dynamic is False,
            recompile_limit=recompile_limit,
        )

    alone = door is not None or frozen or background or one_rank or isolate_recompiles or disable
    engine = new_engine() if alone else regions.engine_for(fn, given, new_engine)
    target = capture.install(
        fn,
        engine.compile_graph,
        fullgraph=fullgraph,
        capture=engine.capture,
        disable=disable,
        guard_filter=guard_filter,
    )
    start = shortcuts.first_frame(target)
    module = start[1] if start is not None and frozen and isinstance(start[1], torch.nn.Module) else None
    called = getattr(fn, "__qualname__", type(fn).__name__)
    engine.starts_at(start[0].__code__ if start else None, called, frozen=module)
    shortcut = None
    if start is not None and not disable:
        shortcut = shortcuts.Shortcut.to(target, start, engine.serves_alone, frozen=frozen)
    shared = None
    if one_rank and not disable:
        place = None if artifacts is None else os.fspath(artifacts)
        shared = OneRank(fn, engine, door=door, mode=mode, options=options, artifacts=place)
    behind = None
    if background and not disable:
        behind = Background(fn, engine, door=door, mode=mode, options=options)
    in_front = [x.around for x in (shortcut, shared, behind, door) if x is not None]
    if door is not None:
        in_front.insert(0, door.remembered)
    if modules.is_module(fn):
        return modules.compiled(target, engine, in_front, anew=functools.partial(compile, **given))
    for around in (engine.settled, *in_front):
        target = around(target)
    return CompiledFunction(fn, target, engine)


_PARAMETERS = inspect.signature(compile).parameters


def _compile_in_place(module: Any, given: dict[str, Any]) -> Any:
    """As `module.compile()` does: the module itself, whose calls are compiled from here on."""
    if not modules.is_module(module):
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
            value=f"mode={mode!r}",
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


def _specialize(given: Any, door: Door | None, mode: str | None, options: dict[str, Any] | None) -> Any:
    """What was declared; with CUDA graphs each size has a recording of its own already."""
    if given == "never" or cuda_graphs.are_recorded(mode, options):
        return "never"
    return "hot" if door is None else door.declaration.specialize


_UNDECLARED = {"semantics": "eager", "on_new_behavior": "compile", "specialize": "hot"}


def declared_door(fn: Any, words: dict[str, Any]) -> Door | None:
    """The door for what was declared, by the call or by `anyshape.toml`, checked; None where nothing was."""
    given = {k: v for k, v in words.items() if v is not None and not (isinstance(v, str) and v == _UNDECLARED.get(k))}
    entry = _entry(fn)
    if not given and (entry is None or not entry.words):
        return None
    declared_in = str(entry.source.path) if entry is not None and entry.words else None
    words = declared_words({**words, **(entry.words if entry is not None else {}), **given})
    owner = fn if modules.is_module(fn) else getattr(fn, "__self__", None)
    try:
        signature = inspect.signature(fn.forward if modules.is_module(fn) else fn)
    except (TypeError, ValueError):  # a builtin that does not tell
        signature = None
    if not given and entry is not None:
        door = Door(entry.declaration(signature), signature, owner)
    else:
        door = Door(Declaration.parse(**words, signature=signature), signature, owner)
    door.declared_in = declared_in
    return door


def declared_words(words: dict[str, Any]) -> dict[str, Any]:
    """The words of a declaration; those of torch's ShapesSpec are put into ours."""
    spec = specs.words(words["shapes"])
    if spec is None:
        return words
    return {**words, **{k: v for k, v in spec.items() if words.get(k) is None or k == "shapes"}}


def _entry(fn: Any) -> spec_file.Entry | None:
    """What `anyshape.toml` says about a callable."""
    spec = spec_file.load()
    if spec is None:
        return None
    named = type(fn) if modules.is_module(fn) else fn
    module, name = str(getattr(named, "__module__", "")), str(getattr(named, "__qualname__", ""))
    return spec.entry(module, name) or (spec.entry(module, f"{name}.forward") if named is not fn else None)


@contextlib.contextmanager
def warm_up(f: Any) -> Iterator[Any]:
    """New behaviours are compiled inside, also where `on_new_behavior` says that none are."""
    engine = engine_of(f, asked_by="warm_up", fix="anyshape.warm_up(f)")
    engine.warming += 1
    try:
        yield f
    finally:
        engine.warming -= 1
