"""Dispatch over loaded programs without Dynamo: call signature, admission, program.

Owns dispatch without Dynamo: the form of a call, then the sizes it is admitted for, then the program; a call that was
seen before is a lookup. Nothing is captured and nothing compiled here.
"""

from __future__ import annotations

import dataclasses
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from anyshape._torch.bundle import frame_bytes
from anyshape._torch.bundle.code_bytes import Bundle
from anyshape._torch.runtime import call_signature
from anyshape.ahead.admitted import Admitted
from anyshape.ahead.stored import Stored
from anyshape.errors import NewBehaviorError
from anyshape.foundation import limits
from anyshape.foundation.call_keys import key_function
from anyshape.programs import Program, Variant

# Where the call is made otherwise than the file was, the cure is not another file.
_FIXES: Final = {
    "grad mode is False, and it was made for True": "precompile it as it is called: under torch.no_grad()",
    "grad mode is True, and it was made for False": "with torch.no_grad(): f(x)",
    "inference mode is True, and it was made for False": "precompile it as it is called: under torch.inference_mode()",
    "inference mode is False, and it was made for True": "with torch.inference_mode(): f(x)",
}


class Loaded:
    """A program of a file, loaded for a live callable."""

    def __init__(self, stored: Stored, live: Any, owner: Any) -> None:
        self.stored = stored
        self.calls = 0
        self._variant_calls = [0] * len(stored.variants)
        self._owner = owner
        self._admitted = Admitted(stored)
        self.function = stored.frame.function(self._graph(_check(stored)), live, stored.view.name)
        self._signature = inspect.signature(self.function)
        self._fetch = frame_bytes.fetcher(stored.sources)
        own = frame_bytes.plain_function(live) or frame_bytes.plain_function(getattr(live, "forward", None))
        self._globals: Mapping[str, Any] = own.__globals__ if own is not None else {}
        self._around = dict(zip(self.function.__code__.co_freevars, self.function.__closure__ or (), strict=True))
        paths = {leaf.path for leaf in stored.form.leaves}
        # Sizes of what is no argument are in no key, and memory is shared or not from call to call.
        self.asks_always = stored.apart or any(s not in paths for s in stored.sources)
        self.run: Callable[..., Any] = self.function if owner is None else self.function.__get__(owner)

    def load(self) -> None:
        """Map the code now, and not when it is first called."""
        self._general.load()

    def refusal(self, args: Sequence[Any], kwargs: Mapping[str, Any], training: bool | None) -> str | None:
        """Why it does not serve a call; None where it does."""
        given = args if self._owner is None else (self._owner, *args)
        try:
            bound = self._signature.bind(*given, **kwargs)
        except TypeError as error:
            return str(error)
        bound.apply_defaults()
        leave = [next(iter(bound.arguments))] if self._owner is not None and not self.stored.frame.wrapped else []
        try:
            form = call_signature.form(bound.arguments, leave=leave, training=training)
        except call_signature.Unknown as error:
            return f"{error} is neither a tensor nor a plain value"
        difference = self.stored.form.differs(form)
        if difference is not None:
            return difference
        local = {**bound.arguments, **{name: cell.cell_contents for name, cell in self._around.items()}}
        values = self._fetch(local, self._globals)
        refused = self._admitted(*values)
        if refused is not None:
            return refused
        if self.stored.apart and call_signature.overlap(_leaves(form, local)):
            return "arguments share memory, and it writes to one of them"
        return None

    def view(self) -> Program:
        variants = zip(self.stored.variants, self._variant_calls, strict=True)
        made = tuple(Variant(v.text, calls, 0.0) for v, calls in variants)
        return dataclasses.replace(
            self.stored.view, calls=self.calls, variants=made, classes=self._admitted.classes, verify_seconds=0.0
        )

    def _graph(self, check: Callable[[Any], None] | None) -> Callable[..., Any]:
        """The compiled graph with all that stands around it. Code is mapped when it is first called."""
        stored = self.stored
        self._general = general = _AtFirstCall(stored.general)
        compiled: Callable[..., Any] = self._with_variants(general) if stored.variants else general
        if stored.raises is not None:
            compiled = stored.raises(compiled)
        if stored.restore is not None:
            compiled = stored.restore(compiled)
        inner = compiled

        def run(*args: Any) -> Any:
            self.calls += 1
            if check is not None:
                check(args)
            return inner(*args)

        return run

    def _with_variants(self, general: Callable[..., Any]) -> Callable[..., Any]:
        key = key_function(self.stored.key_parts)
        known = {v.key: (i, _AtFirstCall(v.bundle)) for i, v in enumerate(self.stored.variants)}

        def run(*args: Any) -> Any:
            found = known.get(key(args))
            if found is None:
                return general(*args)
            self._variant_calls[found[0]] += 1
            return found[1](*args)

        return run


def _check(stored: Stored) -> Callable[[Any], None] | None:
    """What the program asserts of the graph's arguments; None where that is nothing."""
    if not stored.asserts:
        return None
    from anyshape.admission import oblivious_assertions

    recording, _, numbers = stored.recording()
    return oblivious_assertions.checker(recording, numbers)


class _AtFirstCall:
    """The code of a bundle, loaded when it is first called: the first answer does not wait for the rest."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._lock = threading.Lock()
        self._run: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        run = self._run
        return (run or self.load())(*args)

    def load(self) -> Callable[..., Any]:
        with self._lock:
            self._run = self._run or self._bundle.load()
            return self._run


def _leaves(form: call_signature.Form, local: Mapping[str, Any]) -> tuple[Any, ...]:
    return frame_bytes.fetcher([leaf.path for leaf in form.leaves])(local, {})


class Dispatcher:
    """The programs of a callable. `find` gives the one that serves a call."""

    def __init__(self, live: Any) -> None:
        self.live = live
        self.owner = live if isinstance(live, torch.nn.Module) else getattr(live, "__self__", None)
        self.module = self.owner if isinstance(self.owner, torch.nn.Module) else None
        self.programs: list[Loaded] = []
        self.fallbacks: dict[str, int] = {}
        self._known: dict[Any, Loaded] = {}
        self._most_keys = limits.keys()

    def add(self, stored: Stored, *, at_once: bool = False) -> Loaded:
        """A program more; with its code `at_once` rather than when it is first called."""
        loaded = Loaded(stored, self.live, None if stored.frame.wrapped else self.owner)
        if at_once:
            loaded.load()
        self.programs = [*self.programs, loaded]
        return loaded

    def key(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What a call is remembered by; None for one that is not."""
        return call_signature.key(args, kwargs, None if self.module is None else self.module.training)

    def find(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any] | None:
        """What serves a call; None where nothing does."""
        training = None if self.module is None else self.module.training
        key = self.key(args, kwargs)
        found = self._known.get(key) if key is not None else None
        if found is not None and not (found.asks_always and found.refusal(args, kwargs, training)):
            return found.run
        for program in self.programs:
            if program is not found and program.refusal(args, kwargs, training) is None:
                if key is not None:
                    if len(self._known) >= self._most_keys:
                        self._known.clear()
                    self._known[key] = program
                return program.run
        return None

    def new_behaviour(self, args: Sequence[Any], kwargs: Mapping[str, Any], name: str) -> NewBehaviorError:
        """What tells a call from the program that comes nearest to serving it."""
        training = None if self.module is None else self.module.training
        reasons = [(p, p.refusal(args, kwargs, training) or "") for p in self.programs]
        # One that differs in a size alone is nearer than one for other arguments.
        nearest = min(reasons, key=lambda r: (not r[1].startswith("it needs"), -r[0].calls), default=None)
        if nearest is None:
            return NewBehaviorError(f"the artifact has no program of {name}", value=0, fix="precompile it with a call")
        program, reason = nearest
        view = program.view()
        asked = next((p for p in view.predicates if reason == f"it needs {p.text}"), None)
        return NewBehaviorError(
            f"no program of {view.name} that was loaded serves this call, and nothing is compiled here",
            where=f"{asked.file}:{asked.line}"
            if asked is not None
            else f"{view.file}:{view.line}"
            if view.file
            else None,
            value=f"the nearest program is for {view.behavior}; {reason}",
            fix=_FIXES.get(
                reason, 'anyshape.precompile(fn, args, calls=[...]) with such a call, or on_new_behavior="eager"'
            ),
        )
