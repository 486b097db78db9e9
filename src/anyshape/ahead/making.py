"""Capturing and compiling a call without running it, into a program that can be saved.

Owns the making: a call is captured and compiled, and not run, by an engine whose results can be written; what it made
is put together as a stored program.
"""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from anyshape._torch.bundle import aot_results, frame_bytes, recording_bytes
from anyshape._torch.capture import capture_scope, failures
from anyshape._torch.runtime import call_signature, compiled_modules, process_group
from anyshape._torch.runtime.shortcuts import torchs_wrapper
from anyshape.admission import admission_code
from anyshape.ahead.stored import Stored, StoredVariant
from anyshape.declaration.entry_check import EntryCheck
from anyshape.engine.engine import Captured, Engine
from anyshape.engine.live_program import LiveProgram
from anyshape.errors import ArtifactError, Error, NotCompilableError
from anyshape.foundation.reruns import RunAgain, RunEagerly


class Workshop:
    """Makes the programs of one callable, call by call."""

    def __init__(
        self,
        live: Any,
        *,
        entry_check: EntryCheck | None = None,
        specialize: Any = "never",
        mode: str | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.live = live
        self.engine = Engine(
            aot_results.bundling_backend(mode, options),
            fullgraph=True,
            own_backend=False,
            entry_check=entry_check,
            specialize=specialize,
            saves=True,
        )
        self._target = capture_scope.install(
            live, self.engine.compile_graph, fullgraph=True, capture=self.engine.capture
        )
        self._function, self.owner = _function(live, self._target)
        self.engine.starts_at(self._function.__code__, getattr(live, "__qualname__", type(live).__name__))
        call: Callable[..., Any] = self._target
        self._call = entry_check.around(entry_check.remembered(call)) if entry_check is not None else call
        cells = zip(self._function.__code__.co_freevars, self._function.__closure__ or (), strict=True)
        self._around = {name: cell.cell_contents for name, cell in cells}
        self.stored: list[Stored] = []
        self._done: set[int] = set()

    def make(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Stored]:
        """The programs that a call needs and that were not there yet. The call is captured, and not run."""
        self._check_fit(args, kwargs)
        form = self._form(args, kwargs)
        self._run(args, kwargs)
        self._verify(args, kwargs)
        made = [self._put_together(p, form) for p in self.engine.programs if id(p) not in self._done]
        self._done.update(id(p) for p in self.engine.programs)
        self.stored += made
        return made

    def finish(self) -> list[Stored]:
        """All programs with the variants they have by now."""
        kept = {id(p): self._put_together(p, s.form) for p, s in zip(self.engine.programs, self.stored, strict=True)}
        return list(kept.values())

    def _check_fit(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """An example call that the function does not take is refused before torch is asked about it."""
        try:
            inspect.signature(getattr(self.live, "forward", self.live)).bind(*args, **kwargs)
        except TypeError as error:
            given = [*(type(a).__name__ for a in args), *(f"{n}={type(v).__name__}" for n, v in kwargs.items())]
            raise NotCompilableError(
                f"the example call does not fit the function: {error}",
                where="anyshape.precompile(fn, args, kwargs)",
                value=f"({', '.join(given)})",
                fix=f"args and kwargs that fit {inspect.signature(getattr(self.live, 'forward', self.live))}",
                code="AS007",
            ) from None

    def _run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        before = dict(self.engine.fallbacks)
        try:
            with process_group.for_a_file():
                self._call(*args, **kwargs)
        except Captured:
            return
        except RunAgain:
            self._run(args, kwargs)
            return
        except RunEagerly as eagerly:
            raise refused(eagerly.reason) from None
        except Error:
            raise
        except Exception as error:
            if type(error).__module__.startswith("torch._"):
                raise refused(failures.reason(error)) from error
            raise
        new = {reason for reason, n in self.engine.fallbacks.items() if n != before.get(reason, 0)}
        raise refused("; ".join(sorted(new)) or "there is nothing to compute in it")

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name."""
        given = args if self.owner is None else (self.owner, *args)
        bound = inspect.signature(self._function).bind(*given, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    def _form(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> call_signature.Form:
        arguments = self.bind(args, kwargs)
        leave = [next(iter(arguments))] if self.owner is not None else []
        module = self.live if compiled_modules.is_module(self.live) else self.owner
        training = module.training if compiled_modules.is_module(module) else None
        try:
            return call_signature.form(arguments, leave=leave, training=training)
        except call_signature.Unknown as error:
            raise refused(f"{error} is neither a tensor nor a plain value") from None

    def _verify(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """What can be said of these very sizes is said now, and not at the first call after loading."""
        local = {**self.bind(args, kwargs), **self._around}
        for program in self.engine.programs:
            if program.admission is not None and program.origin is self._function.__code__:
                fetch = frame_bytes.fetcher([i.source for i in program.admission.inputs])
                with contextlib.suppress(Exception):  # a program for arguments of another kind
                    program.admission(*fetch(local, self._function.__globals__))
                for key in [k for k, admitted in program.admission.known.items() if admitted]:
                    with contextlib.suppress(Exception):  # for which others they speak; if that fails, for none
                        program.admission.refuses(key)

    def _put_together(self, program: LiveProgram, form: call_signature.Form) -> Stored:
        recording, made, admission = program.recording, program.made, program.admission
        code = program.code() if program.code is not None else None
        if recording.graph_breaks:
            raise refused(f"the graph breaks: {recording.graph_breaks[0]}")
        if program.origin is not self._function.__code__:
            raise refused("the call is more than one frame", fix=_unwrapped(self.live))
        if made is None or admission is None or code is None:
            raise refused("there is nothing to compute in it")
        if not isinstance(made.general, aot_results.Bundled):
            raise refused("the backend's code cannot be saved")
        sizes = {
            i.source: [int(s) if s.is_number else None for s in i.sizes] for i in admission.inputs if i.kind == "tensor"
        }
        numbers = {i.source for i in admission.inputs if i.kind == "number"}
        for leaf in form.leaves:
            if f"source={leaf.path}," not in program.guards:  # nobody looked at it
                sizes.setdefault(leaf.path, [None] * len(leaf.sizes))
                numbers.add(leaf.path)
        variants = program.hot_sizes.made() if program.hot_sizes is not None else []
        return Stored(
            view=program.view(),
            graph=made.text,
            frame=frame_bytes.Frame.of(code, self._function),
            form=call_signature.freed(form, sizes, numbers),
            sources=tuple(i.source for i in admission.inputs),
            parts=admission.parts,
            admits=admission_code.told(admission),
            assumed=recording_bytes.dumps((recording_bytes.state(recording), admission.inputs, tuple(made.numbers))),
            restore=made.restore,
            raises=made.raises,
            asserts=bool(made.numbers and recording.oblivious.assertions),
            known={key: True for key, admitted in admission.known.items() if admitted},
            apart=recording.writes or bool(recording.apart) or bool(recording.out_calls),
            key_parts=made.master.key_parts() if made.master is not None else (),
            general=made.general.bundle(),
            variants=tuple(StoredVariant(k, t, run.bundle()) for k, t, run in variants),  # type: ignore[attr-defined]
        )


def _function(live: Any, target: Any) -> tuple[types.FunctionType, Any]:
    """The function whose frame is captured, and what is its `self`."""
    if isinstance(live, torch.nn.Module):
        wrapper = torchs_wrapper(target)
        if wrapper is not None:
            return wrapper, None
        if live._forward_hooks or live._forward_pre_hooks or live._backward_hooks:
            raise refused("the module has hooks, which run outside of what is captured")
        live = live.forward
    function = frame_bytes.plain_function(live)
    if function is None:
        raise refused(f"{type(live).__name__} is no Python function")
    return function, getattr(live, "__self__", None)


def refused(what: str, *, fix: str | None = None) -> ArtifactError:
    fix = fix or "f = anyshape.compile(fn) where it is used, or change what is in the way"
    return ArtifactError(
        f"this cannot be precompiled: {what}", where="anyshape.precompile(fn, ...)", fix=fix, code="AS056"
    )


def _unwrapped(live: Any) -> str | None:
    """What to do instead where a decorator is what makes a second frame."""
    function = getattr(live, "forward", live)
    inner = getattr(function, "__wrapped__", None)
    if inner is None:
        return None
    name = getattr(inner, "__name__", "fn")
    if str(getattr(function, "__globals__", {}).get("__name__")).startswith("torch."):  # one of its grad modes
        mode = "torch.inference_mode" if _enters_inference(function) else "torch.no_grad"
        return f"take the decorator off {name}, and: with {mode}(): anyshape.precompile({name}, args)"
    return f"anyshape.precompile({name}.__wrapped__, args), or take the decorator off"


def _enters_inference(function: Any) -> bool:
    """Whether one of torch's grad-mode decorators is that of inference mode."""
    return any(
        getattr(getattr(cell.cell_contents, "__self__", cell.cell_contents), "__class__", None) is torch.inference_mode
        for cell in function.__closure__ or ()
    ) or "inference" in " ".join((function.__code__.co_name, *function.__code__.co_names))
