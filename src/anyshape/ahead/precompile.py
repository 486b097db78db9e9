"""`anyshape.precompile` and `anyshape.load`.

Owns the artifact: what was made from a callable and its calls, saved as one file, and a callable again from a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch

from anyshape._torch.bundle import environment
from anyshape._torch.runtime import compiled_modules
from anyshape.ahead import sources
from anyshape.ahead import weights as embedded
from anyshape.ahead.covering import cover_all
from anyshape.ahead.making import Workshop
from anyshape.ahead.stored import Stored
from anyshape.artifact import container, manifest, storage, trust
from anyshape.compiler import CompiledFunction, declared_entry_check
from anyshape.declaration.options import read_word
from anyshape.errors import ArtifactError
from anyshape.foundation import interrupts
from anyshape.foundation.option_types import (
    Address,
    Clauses,
    Hints,
    Key,
    Layouts,
    Mode,
    Semantics,
    Shapes,
    Specialize,
    Weights,
)
from anyshape.programs import Program

# A tuple of arguments, or a pair of arguments and keywords.
Call: TypeAlias = tuple[object, ...] | list[object]


class Artifact:
    """Programs of one callable, ready to be saved."""

    def __init__(self, facts: Mapping[str, Any], members: Mapping[str, bytes], programs: Sequence[Stored]) -> None:
        self.manifest = dict(facts)
        self._members = dict(members)
        self._stored = tuple(programs)

    @property
    def key(self) -> str:
        """Of what it was made from: source, calls, declaration and environment. The same in every process."""
        return str(self.manifest["key"])

    @property
    def programs(self) -> tuple[Program, ...]:
        """What is inside, as `f.programs` says it."""
        return tuple(s.view for s in self._stored)

    @property
    def graphs(self) -> tuple[str, ...]:
        """The captured graph of each program as text. The same in every process."""
        return tuple(s.graph for s in self._stored)

    def pack(self, *, key: Key | None = None) -> bytes:
        """The bytes of the file, signed if there is a key."""
        return container.pack(self.manifest, self._members, sign=trust.signer(key))

    @interrupts.heeded()
    def save(self, url: Address, *, key: Key | None = None) -> None:
        """Write it, all of it or nothing, to a path or any URL that fsspec knows; signed if there is a key."""
        storage.write(url, self.pack(key=key))

    def __repr__(self) -> str:
        return f"<anyshape artifact of {self.manifest['name']}: {len(self._stored)} programs, key {self.key[:12]}>"


@interrupts.heeded()
def precompile(
    fn: Callable[..., object],
    args: tuple[object, ...] | list[object] = (),
    kwargs: Mapping[str, object] | None = None,
    *,
    calls: Sequence[Call] = (),
    shapes: Shapes | None = None,
    where: Clauses | None = None,
    layout: Layouts | None = None,
    hints: Hints | None = None,
    specialize: Specialize | None = None,
    semantics: Semantics = "eager",
    cover: bool = False,
    weights: Weights = "live",
    mode: Mode | None = None,
    options: Mapping[str, object] | None = None,
) -> Artifact:
    """Compile a function or module now, for a process that never compiles.

    The call `fn(*args, **kwargs)` and each of `calls` (tuples of arguments, or pairs of arguments and keyword
    arguments) are traced, but not run. Each behavior among them gets a program. Under `torch.no_grad()` the programs
    are for inference; otherwise forward and backward are compiled. `cover=True` finds more calls until the programs
    cover all sizes that the declaration allows. `specialize` names sizes that also get static code
    (`["batch == 1"]`), if a call has them. `weights="embed"` saves the parameters in the file.
    """
    read_word("weights", weights, ("live", "embed"))
    options = None if options is None else dict(options)
    fn = _original(fn)
    compiled_modules.check_callable(fn, asked_by="precompile")
    args, kwargs = compiled_modules.check_call(args, kwargs, asked_by="precompile")
    if isinstance(specialize, str) and specialize == "buckets":
        raise ArtifactError(
            "this cannot be precompiled: buckets are made of the calls that come, and a file holds exact sizes",
            where='anyshape.precompile(..., specialize="buckets")',
            fix='specialize=["batch == 1"], or anyshape.compile(fn, specialize="buckets") where it is used',
            code="AS056",
        )
    words = {"shapes": shapes, "where": where, "layout": layout, "hints": hints, "specialize": specialize}
    entry_check = declared_entry_check(fn, {**words, "semantics": semantics, "on_new_behavior": "compile"})
    clauses = (
        entry_check.declaration.specialize if entry_check is not None and not isinstance(specialize, str) else "never"
    )
    workshop = Workshop(fn, entry_check=entry_check, specialize=clauses, mode=mode, options=options)
    made: list[tuple[Any, Any]] = [(args, kwargs), *map(_call, calls)]
    for given, named in made:
        workshop.make(given, named)
    if cover:
        made += cover_all(workshop, made)
    programs = workshop.finish()
    members: dict[str, bytes] = {}
    for i, program in enumerate(programs):
        members.update(program.members(f"programs/{i}"))
    if weights == "embed":
        members.update(embedded.members(fn))
    declaration = {} if entry_check is None else entry_check.declaration.json()
    needs = environment.needed(_devices(fn, made))
    source = sources.digests(fn)
    key = manifest.key_of(source, declaration, needs, weights, mode, options, [_text(c) for c in made])
    facts = manifest.compose(
        name=sources.name(fn),
        environment=needs,
        source=source,
        declaration=declaration,
        weights=weights,
        programs=[p.summary() for p in programs],
        key=key,
    )
    return Artifact(facts, members, programs)


def _original(fn: Any) -> Any:
    """What a compiled callable was made from; anything else as it is."""
    if compiled_modules.is_compiled(fn):
        return fn._orig_mod
    return fn._function if isinstance(fn, CompiledFunction) else fn


def _call(given: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], Mapping):
        return compiled_modules.check_call(given[0], given[1], asked_by="precompile")
    return compiled_modules.check_call(given, None, asked_by="precompile")


def _text(call: Any) -> str:
    def leaf(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{value.dtype} {tuple(value.shape)} {value.stride()} {value.device.type} {value.requires_grad}"
        return repr(value)

    from anyshape._torch.runtime import trees

    return f"{trees.map_leaves(leaf, call)} {torch.is_grad_enabled()}"


def _devices(fn: Any, calls: Sequence[object]) -> set[str]:
    from anyshape._torch.runtime import trees

    found = [t for t in trees.leaves(list(calls)) if isinstance(t, torch.Tensor)]
    if isinstance(fn, torch.nn.Module):
        found += [*fn.parameters(), *fn.buffers()]
    return {t.device.type for t in found}
