"""The registry of repairs: how a change of torch is declared, ordered, entered and undone.

Owns the form in which a repair is declared, above the function that does it; the order in which repairs of one name
stand on one another; and the scope that enters and leaves them. What a repair does is told where it is declared.

    @repair(
        "torch._inductor.lowering:lowerings[aten.split.Tensor]",
        scope="compile", phase="lowering", broken="2.11-2.15",
        symptom="...", cause="...", cure="...", goes="when ...",
    )
    def split_of_nothing(stock): ...

A function whose first parameter is `stock` is given what it replaces, each time that a scope is entered, and gives
what stands there inside (`stock` itself: nothing is changed). If it has a second parameter, that is the name or key.
Keyword-only parameters are taken from the options of the scope. Any other function is itself what stands there. For
settings (`torch._dynamo.config:recompile_limit`) the function gives all of them, by name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
import pkgutil
import re
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from anyshape._torch.repairs import own_thread
from anyshape.foundation import interrupts

Kind = Literal["fault", "meaning", "speed", "watch"]
Phase = Literal["capture", "fake run", "AOT", "lowering", "codegen", "run time", "export", "load"]
Status = Literal["applied", "absent", "not needed"]
MISSING: Final = object()
_PATH: Final = re.compile(r"([\w.]*(?:\(\))?)(?:\[(.+)\])?")


@dataclasses.dataclass(frozen=True, eq=False)
class Place:
    """A name of torch's, or an entry of one of its tables."""

    text: str
    find: Callable[[], tuple[Any, Any] | None]  # the owner and the name or key; None where there is no such owner

    @functools.cached_property
    def found(self) -> tuple[Any, Any] | None:
        return self.find()

    @property
    def is_there(self) -> bool:
        return self.found is not None and _value(*self.found) is not MISSING


Target = str | Place | Callable[[], Sequence[Place]]


@dataclasses.dataclass(frozen=True, eq=False)
class Repair:
    """One change of torch, as it is declared."""

    name: str  # the module and the function that does it
    targets: tuple[Target, ...]
    scope: str
    kind: Kind
    phase: Phase
    broken: str  # the versions of torch with the fault; "" where there is none, and torch is given another meaning
    upstream: str
    symptom: str
    cause: str
    cure: str
    goes: str
    absent: Literal["skip", "raise"]
    over: tuple[str, ...]  # repairs of the same name that this one is put on top of
    adds: bool
    shared: bool
    apart: bool
    by_itself: bool
    needed: Callable[[], bool] | None
    then: Callable[[], None] | None
    function: Any

    @functools.cached_property
    def places(self) -> tuple[Place, ...]:
        found: list[Place] = []
        for target in self.targets:
            found += [place(target)] if isinstance(target, str) else [target] if isinstance(target, Place) else target()
        return tuple(found)

    @functools.cached_property
    def is_needed(self) -> bool:
        return self.needed is None or self.needed()

    @functools.cached_property
    def makes(self) -> bool:
        return bool(_parameters(self.function)[0][:1] == ("stock",))

    @property
    def status(self) -> Status:
        if not any(p.is_there or (self.adds and p.found is not None) for p in self.places):
            return "absent"
        return "applied" if self.is_needed else "not needed"

    def held(self) -> tuple[Place, ...]:
        """The places that are changed on this torch."""
        if self.status != "applied":
            return ()
        return tuple(p for p in self.places if p.is_there or (self.adds and p.found is not None))

    def make(self, stock: Any, key: Any, options: Mapping[str, Any]) -> Any:
        function = getattr(self.function, "__globals__", {}).get(self.function.__name__, self.function)
        if not self.makes:
            return function
        positional, named = _parameters(self.function)
        return function(*(stock, key)[: len(positional)], **{n: options[n] for n in named})

    def settings(self, options: Mapping[str, Any]) -> dict[str, Any]:
        _, named = _parameters(self.function)
        return dict(self.function(**{n: options[n] for n in named}))


_all: dict[str, Repair] = {}
_left_out: set[str] = set()


def repair(
    *targets: Target,
    scope: str,
    phase: Phase,
    symptom: str,
    cure: str,
    goes: str,
    broken: str = "",
    cause: str = "",
    upstream: str = "unfiled",
    kind: Kind = "fault",
    absent: Literal["skip", "raise"] = "raise",
    over: tuple[str, ...] = (),
    adds: bool = False,
    shared: bool = False,
    apart: bool = True,
    by_itself: bool = False,
    needed: Callable[[], bool] | None = None,
    then: Callable[[], None] | None = None,
) -> Callable[[Any], Any]:
    """Declare what the function below does to torch; the function stays what it is.

    `adds`: the entries are not there before. `shared`: it holds for all threads, until the last that needs it leaves.
    `apart`: a function that is replaced is so for the thread that entered the scope. `by_itself`: it is entered by
    code of its own, below; it is declared to be listed. `needed` tells of this torch. `then` is called after a change
    either way.
    """
    if kind == "fault" and not (broken and cause):
        raise ValueError("a fault has versions and a cause")

    def declare(function: Any) -> Any:
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__.strip('_')}"
        if name in _all:
            raise ValueError(f"{name} is declared twice")
        texts = [t for t in targets if isinstance(t, str)]
        if len(set(texts)) < len(texts):
            raise ValueError(f"{name} names a place twice")
        _all[name] = Repair(
            name,
            targets,
            scope,
            kind,
            phase,
            broken=broken,
            upstream=upstream,
            symptom=symptom,
            cause=cause,
            cure=cure,
            goes=goes,
            absent=absent,
            over=over,
            adds=adds,
            shared=shared,
            apart=apart,
            by_itself=by_itself,
            needed=needed,
            then=then,
            function=function,
        )
        _plan.cache_clear()
        return function

    return declare


def place(text: str) -> Place:
    """`module:Class.name`, or `module:table[key]` with a name or an operator for a key."""
    module, _, path = text.partition(":")
    match = _PATH.fullmatch(path)
    if not module or match is None or not match[1]:
        raise ValueError(f"{text!r} names no place")
    return Place(text, functools.partial(_find, module, match[1], match[2]))


def _find(module: str, path: str, key: str | None) -> tuple[Any, Any] | None:
    try:
        owner: Any = importlib.import_module(module)
    except ImportError:
        return None
    names = path.split(".")
    for name in names if key is not None else names[:-1]:
        owner = getattr(owner, name.removesuffix("()"), None)
        if owner is None:
            return None
        if name.endswith("()"):
            owner = owner()
    if key is None:
        return owner, names[-1]
    return owner, _operator(key) if key.startswith(("aten.", "prims.")) else key


def _operator(text: str) -> Any:
    import torch

    found: Any = torch.ops
    for name in text.split("."):
        found = getattr(found, name)
    return found


def _value(owner: Any, key: Any) -> Any:
    """What is there now; an attribute as it is stored, where it is the owner's own."""
    if isinstance(owner, dict):
        return owner.get(key, MISSING)
    if isinstance(owner, list):
        return owner[key]
    if _is_config(owner):
        return key if hasattr(owner, key) else MISSING
    own = vars(owner).get(key, MISSING)
    return getattr(owner, key, MISSING) if own is MISSING else own


def _is_config(owner: Any) -> bool:
    return isinstance(owner, types.ModuleType) and hasattr(owner, "get_config_copy")


@functools.cache
def _parameters(function: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of positional and of keyword-only parameters."""
    if not inspect.isfunction(function):
        return (), ()
    code = function.__code__
    count, names = code.co_argcount, code.co_varnames
    return names[:count], names[count : count + code.co_kwonlyargcount]


# -- order ---------------------------------------------------------------------------------------------------------


def declared() -> list[Repair]:
    """Every repair of every module, in the order in which they are entered."""
    from anyshape import _torch

    for module in pkgutil.walk_packages(_torch.__path__, f"{_torch.__name__}."):
        if module.name.rpartition(".")[2] not in _NONE_INSIDE:
            importlib.import_module(module.name)
    return ordered(list(_all.values()))


_NONE_INSIDE: Final = ("opinfo",)  # imports torch's tests


def of_scope(scope: str) -> list[Repair]:
    """Those of the modules that are imported."""
    return [one for one in _all.values() if one.scope == scope]


def ordered(repairs: Sequence[Repair]) -> list[Repair]:
    """By module, each after those that it is put on top of; a name that two want, in no order, is refused."""
    repairs = sorted(repairs, key=lambda one: one.name.partition(".")[0])
    by_name = {r.name: r for r in repairs}
    done: dict[str, Repair] = {}

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"repairs stand on one another in a circle: {', '.join((*above, name))}")
        if name in done or name not in by_name:
            return
        for under in by_name[name].over:
            visit(under, (*above, name))
        done[name] = by_name[name]

    for one in repairs:
        visit(one.name, ())
    _refuse_duplicates(list(done.values()))
    return list(done.values())


def _refuse_duplicates(repairs: Sequence[Repair]) -> None:
    by_name = {r.name: r for r in repairs}
    wanted: dict[str, list[Repair]] = {}

    def under(one: Repair) -> set[str]:
        found = {name for name in one.over if name in by_name}
        return found.union(*(under(by_name[name]) for name in found))

    for one in repairs:
        for target in (t.text if isinstance(t, Place) else t for t in one.targets if not callable(t)):
            for other in wanted.setdefault(target, []):
                if other.name not in under(one) and one.name not in under(other):
                    raise ValueError(f"{one.name} and {other.name} both replace {target}: say which is `over` which")
            wanted[target].append(one)


@contextlib.contextmanager
def without(*names: str) -> Iterator[None]:
    """These repairs are left out inside, for tests of what they are for. Not for two threads at a time."""
    unknown = set(names) - _all.keys()
    if unknown:
        raise KeyError(f"no repair is called {', '.join(sorted(unknown))}")
    _left_out.update(names)
    _plan.cache_clear()
    try:
        yield
    finally:
        _left_out.difference_update(names)
        _plan.cache_clear()


# -- entering and leaving ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Step:
    repair: Repair
    owner: Any
    key: Any


@functools.lru_cache(maxsize=64)
def _plan(*scopes: str, only: tuple[str, ...] | None = None) -> tuple[_Step, ...]:
    steps = []
    for one in ordered(list(_all.values())):
        chosen = one.scope in scopes if only is None else one.name in only or one.name.split(".")[0] in only
        if not chosen or one.by_itself or one.name in _left_out:
            continue
        for spot in one.places:
            if not (spot.is_there or (one.adds and spot.found is not None)):
                if one.absent == "raise":
                    raise AttributeError(f"this torch has no {spot.text}, which anyshape replaces ({one.name})")
            elif one.is_needed and spot.found is not None:
                steps.append(_Step(one, *spot.found))
                if _is_config(spot.found[0]):
                    break  # one step for all settings
    return tuple(steps)


@contextlib.contextmanager
def entered(*scopes: str, **options: Any) -> Iterator[None]:
    """The repairs of these scopes hold inside, and all of them or none: handlers of signals wait meanwhile."""
    with _held(_plan(*scopes), options):
        yield


@contextlib.contextmanager
def only(*names: str, **options: Any) -> Iterator[None]:
    """Some repairs hold inside: those of these names, or of these modules."""
    with _held(_plan(only=names), options):
        yield


@contextlib.contextmanager
def _held(plan: tuple[_Step, ...], options: Mapping[str, Any]) -> Iterator[None]:
    change = interrupts.Change()
    with change:
        undo: list[Callable[[], None]] = []
        tables: dict[int, tuple[dict[Any, Any], set[Any]]] = {}
        try:
            for step in plan:
                if isinstance(step.owner, dict) and id(step.owner) not in tables:
                    tables[id(step.owner)] = (step.owner, set(step.owner))
                _enter(step, options, undo)
            change.settled()
            try:
                yield
            finally:
                change.unsettled()
        finally:
            for act in reversed(undo):
                act()
            for table, before in tables.values():  # what torch has added meanwhile was made for what held inside
                for key in table.keys() - before:
                    del table[key]


def _enter(step: _Step, options: Mapping[str, Any], undo: list[Callable[[], None]]) -> None:
    one, owner, key = step.repair, step.owner, step.key
    if one.shared:
        _share(step, options)
        undo.append(functools.partial(_unshare, step))
        return
    if _is_config(owner):
        values = {name: value for name, value in one.settings(options).items() if hasattr(owner, name)}
        setting = owner.patch(**values)
        setting.__enter__()
        undo.append(lambda: setting.__exit__(None, None, None))
        return
    before = _own(owner, key)
    stock = before if isinstance(owner, (dict, list)) else getattr(owner, key, MISSING)
    made = one.make(None if stock is MISSING else stock, key, options)
    if made is stock:
        return
    if one.apart and not isinstance(owner, (dict, list)):
        made = own_thread.divided(made, stock if before is MISSING else before)
    _set(owner, key, made)
    if one.then is not None:
        one.then()
        undo.append(one.then)
    undo.append(functools.partial(put_back, owner, key, before))


def put_back(owner: Any, key: Any, before: Any) -> None:
    """What was there is there again."""
    if before is not MISSING:
        _set(owner, key, before)
    elif isinstance(owner, dict):
        owner.pop(key, None)
    else:
        delattr(owner, key)


def _own(owner: Any, key: Any) -> Any:
    """What is stored there, and not inherited."""
    if isinstance(owner, dict):
        return owner.get(key, MISSING)
    return owner[key] if isinstance(owner, list) else vars(owner).get(key, MISSING)


def _set(owner: Any, key: Any, value: Any) -> None:
    if isinstance(owner, (dict, list)):
        owner[key] = value
    else:
        setattr(owner, key, value)


_sharing = threading.Lock()
_users: dict[tuple[int, str], int] = {}


def _share(step: _Step, options: Mapping[str, Any]) -> None:
    own = (id(step.owner), step.key)
    with _sharing:
        _users[own] = _users.get(own, 0) + 1
        if _users[own] == 1:
            stock = _own(step.owner, step.key)
            _shared[own] = stock
            _set(step.owner, step.key, step.repair.make(stock, step.key, options))


def _unshare(step: _Step) -> None:
    own = (id(step.owner), step.key)
    with _sharing:
        _users[own] -= 1
        if not _users[own]:
            put_back(step.owner, step.key, _shared.pop(own))


_shared: dict[tuple[int, str], Any] = {}
