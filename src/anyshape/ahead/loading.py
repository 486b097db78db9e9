"""`anyshape.load`: a callable from a file of programs.

Owns the way from a file to a callable. It imports nothing that captures or compiles: a process that only serves is not
to wait for a compiler's modules.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, ParamSpec, Protocol, TypeAlias, TypeVar, overload

import torch

from anyshape._torch.bundle import environment
from anyshape.ahead import sources
from anyshape.ahead import weights as embedded
from anyshape.ahead.loaded_callables import ServedFunction, ServedModule, Serving
from anyshape.ahead.loaded_programs import Dispatcher
from anyshape.ahead.stored import Stored
from anyshape.artifact import container, manifest, opening
from anyshape.artifact import trust as believing
from anyshape.declaration import Declaration
from anyshape.declaration.entry_check import EntryCheck
from anyshape.declaration.options import read_word
from anyshape.declaration.place import brief, kind
from anyshape.errors import ArtifactError, NotCompilableError
from anyshape.foundation import interrupts
from anyshape.foundation.option_types import Address, Key

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound=torch.nn.Module)
_OnNewBehavior: TypeAlias = Literal["error", "eager"]


class Packed(Protocol):
    """An `Artifact` of this process."""

    def pack(self) -> bytes: ...


@overload
def load(
    url: Address | Packed,
    fn: M,
    *,
    key: Key | None = None,
    trust: bool = False,
    name: str | None = None,
    on_new_behavior: _OnNewBehavior = ...,
) -> M: ...
@overload
def load(
    url: Address | Packed,
    fn: Callable[P, R],
    *,
    key: Key | None = None,
    trust: bool = False,
    name: str | None = None,
    on_new_behavior: _OnNewBehavior = ...,
) -> ServedFunction[P, R]: ...
@overload
def load(
    url: Address | Packed,
    fn: None = None,
    *,
    key: Key | None = None,
    trust: bool = False,
    name: str | None = None,
    on_new_behavior: _OnNewBehavior = ...,
) -> ServedFunction[..., Any]: ...
@interrupts.heeded()
def load(
    url: Address | Packed,
    fn: Callable[..., Any] | None = None,
    *,
    key: Key | None = None,
    trust: bool = False,
    name: str | None = None,
    on_new_behavior: _OnNewBehavior = "error",
) -> Any:
    """Load a callable from a file that `Artifact.save` wrote. Nothing is traced or compiled, now or later.

    `url` is a path, any URL that fsspec supports, or an `Artifact`. `fn` is the function or module that the file was
    made from; the current weights of a module are used. Loading runs code from the file, so it must be signed with
    `key`, or trusted with `trust=True`. With a key and without `fn`, `name` says which callable the file must be for. A
    call that no program serves raises `NewBehaviorError`; with `on_new_behavior="eager"` it runs `fn`.
    """
    read_word("on_new_behavior", on_new_behavior, ("error", "eager"))
    trust = believing.read_word(trust)
    if hasattr(url, "pack"):  # an Artifact of this process
        where, trust = "<artifact>", True
        contents = opening.open_bytes(url.pack(), where=where, trusted=True, here=environment.here())
    elif not isinstance(url, (str, bytes, os.PathLike)):
        raise NotCompilableError(
            f"anyshape.load takes a path, a URL or an Artifact, and this is {kind(url)}",
            where="anyshape.load(url)",
            value=brief(url),
            fix='anyshape.load("model.any", fn)',
            code="AS007",
        )
    else:
        where = os.fsdecode(url)
        contents = opening.open_file(where, key=key, trusted=trust, here=environment.here())
    # Whoever may put a file in the place of another has none that is signed, but those of other callables.
    if name is not None or (key is not None and fn is None and not trust):
        manifest.check_name(contents.manifest, name, where)
    return from_contents(contents, fn, where=where, on_new_behavior=on_new_behavior)


def from_contents(contents: container.Contents, fn: Any, *, where: str, on_new_behavior: str = "error") -> Any:
    """A callable from a file that has been checked and is trusted."""
    facts = contents.manifest
    if fn is not None:
        manifest.check_source(facts, sources.digests(fn), where)
        if not facts["source"]:  # nothing that would tell it from others
            manifest.check_name(facts, sources.name(fn), where)
    elif facts["weights"] == "embed":
        fn = embedded.skeleton(contents.members)
    if on_new_behavior == "eager" and (fn is None or facts["weights"] == "embed"):
        what = 'on_new_behavior="eager" runs the original, and the file does not have it'
        value = "fn was not given" if fn is None else "the parameters are in the file, and not those of fn"
        raise ArtifactError(what, where=where, value=value, fix=f'anyshape.load("{where}", fn, ...)', code="AS055")
    programs = [Stored.read(contents.members, f"programs/{i}") for i in range(len(facts["programs"]))]
    dispatcher = Dispatcher(fn)
    for program in programs:
        dispatcher.add(program)
    eagerly = fn if on_new_behavior == "eager" else None
    serving = Serving(dispatcher, facts, entry_check=_entry_check(facts["declaration"], dispatcher), eagerly=eagerly)
    return ServedModule(serving, fn) if isinstance(fn, torch.nn.Module) else ServedFunction(serving, fn)


def _entry_check(words: Mapping[str, Any], dispatcher: Dispatcher) -> EntryCheck | None:
    if not words:
        return None
    program = dispatcher.programs[0]
    signature = inspect.signature(program.run)
    return EntryCheck(Declaration.parse(**words, signature=signature, examined=True), signature, dispatcher.owner)
