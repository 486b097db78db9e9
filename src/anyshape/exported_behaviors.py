"""A package of exported programs, one for each behavior of a model.

Owns how the ways are found (from the limits of one program to the sizes beyond them), which program serves a call, and
the package as a folder or a zip of `.pt2` files with a manifest.
"""

from __future__ import annotations

import collections
import dataclasses
import io
import json
import pathlib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import torch

from anyshape._torch.fake_runs import concrete
from anyshape._torch.runtime import trees
from anyshape.admission import boundaries
from anyshape.declaration import size_conditions
from anyshape.errors import ExportError
from anyshape.exported_program import Exporter, Traced

MOST_BEHAVIORS = 32
_FORMAT = 1
_MANIFEST = "manifest.json"


@dataclasses.dataclass(frozen=True)
class ExportedBehavior:
    """One behavior of a model: its conditions on sizes, and the program for them."""

    text: str  # in the words of the user: x.shape[0] > 8
    conditions: tuple[object, ...]
    program: torch.export.ExportedProgram

    def serves(self, leaves: Sequence[object]) -> bool:
        """Whether the program is right for a call with these tensors."""
        sizes = lambda leaf, dim: int(cast(torch.Tensor, leaves[leaf]).shape[dim])
        return all(size_conditions.holds(c, sizes) for c in self.conditions)


class ExportedBehaviors:
    """The exported programs of all behaviors of a model. Call it like the model."""

    def __init__(self, behaviors: Sequence[ExportedBehavior], keywords: Sequence[str] = ()) -> None:
        self.behaviors = tuple(behaviors)
        self._keywords = tuple(keywords)  # in the order in which their leaves are counted
        self._modules: dict[int, Any] = {}

    def __call__(self, *args: object, **kwargs: object) -> Any:
        index = self._index(args, kwargs)
        if index not in self._modules:
            self._modules[index] = self.behaviors[index].program.module()
        return self._modules[index](*args, **kwargs)

    def behavior_for(self, *args: object, **kwargs: object) -> ExportedBehavior:
        """What serves a call."""
        return self.behaviors[self._index(args, kwargs)]

    def _index(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        named = {k: kwargs[k] for k in self._keywords if k in kwargs}
        leaves = trees.leaves((args, named | kwargs))
        for index, behavior in enumerate(self.behaviors):
            try:
                if behavior.serves(leaves):
                    return index
            except (AttributeError, IndexError):  # other arguments than those it was exported with
                continue
        sizes = ", ".join(str(tuple(x.shape)) for x in leaves if isinstance(x, torch.Tensor))
        raise ExportError(
            "no exported program serves this call: eager raises for such sizes, or it was not found",
            value=f"inputs of {sizes}; there is " + "; ".join(b.text for b in self.behaviors),
            fix='anyshape.export(model, these_args, behaviors="all")',
            code="AS041",
        )

    def __repr__(self) -> str:
        lines = [f"  {i}: {b.text}" for i, b in enumerate(self.behaviors)]
        return "\n".join([f"<{len(self.behaviors)} exported programs", *lines, ">"])

    # -- files -------------------------------------------------------------------------------------------------

    def save(self, path: str | pathlib.Path) -> None:
        """Write the package: a zip where the name ends so, else a folder."""
        path = pathlib.Path(path)
        files: dict[str, bytes] = {}
        entries = []
        for index, behavior in enumerate(self.behaviors):
            buffer = io.BytesIO()
            torch.export.save(behavior.program, buffer)
            name = f"behavior{index}.pt2"
            files[name] = buffer.getvalue()
            entries.append({"file": name, "text": behavior.text, "conditions": list(behavior.conditions)})
        manifest = {"format": _FORMAT, "keywords": list(self._keywords), "behaviors": entries}
        files[_MANIFEST] = json.dumps(manifest, indent=1).encode()
        if path.suffix == ".zip":
            with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
                for name, data in files.items():
                    archive.writestr(name, data)
            return
        path.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (path / name).write_bytes(data)

    @classmethod
    def load(cls, path: str | pathlib.Path) -> ExportedBehaviors:
        """Load a package that `save` wrote."""
        path = pathlib.Path(path)
        files = _read_zip(path) if path.suffix == ".zip" else _Folder(path)
        try:
            manifest = json.loads(files[_MANIFEST])
            if manifest["format"] != _FORMAT:
                raise ValueError(f"format {manifest['format']}, not {_FORMAT}")
            behaviors = []
            for entry in manifest["behaviors"]:
                for condition in entry["conditions"]:
                    size_conditions.check(condition)
                if pathlib.PurePath(entry["file"]).name != entry["file"]:
                    raise ValueError(f"not a file of the package: {entry['file']}")
                program = torch.export.load(io.BytesIO(files[entry["file"]]))
                behaviors.append(ExportedBehavior(entry["text"], tuple(entry["conditions"]), program))
            return cls(behaviors, manifest["keywords"])
        except (KeyError, TypeError, ValueError, OSError) as error:
            what = f"{path} is not a package of exported programs"
            fix = 'anyshape.export(model, args, behaviors="all").save(path)'
            raise ExportError(what, value=f"{type(error).__name__}: {error}", fix=fix, code="AS040") from error


class _Folder(dict[str, bytes]):
    def __init__(self, path: pathlib.Path) -> None:
        super().__init__()
        self._path = path

    def __missing__(self, name: str) -> bytes:
        return (self._path / name).read_bytes()


def _read_zip(path: pathlib.Path) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile) as error:
        what = f"{path} is not a package of exported programs"
        fix = 'anyshape.export(model, args, behaviors="all").save("model.zip")'
        raise ExportError(what, value=f"{type(error).__name__}: {error}", fix=fix, code="AS040") from error


# -- finding them ----------------------------------------------------------------------------------------------


def export_all(exporter: Exporter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ExportedBehaviors:
    """A program for the example, and one for each other way that the sizes beyond its limits lead to."""
    found: list[ExportedBehavior] = []
    waiting: collections.deque[tuple[tuple[Any, ...], dict[str, Any]]] = collections.deque([(args, kwargs)])
    tried: set[tuple[Any, ...]] = set()
    while waiting:
        example = waiting.popleft()
        leaves = concrete.leaves(example)
        shapes = tuple(tuple(x.shape) if isinstance(x, torch.Tensor) else None for x in leaves)
        if shapes in tried or any(b.serves(leaves) for b in found):
            continue
        tried.add(shapes)
        try:
            traced = exporter.settle(exporter.trace(*example))
        except Exception:
            if not found:
                raise
            continue  # the call is refused when it comes: nothing is said of sizes that nobody asked for
        if len(found) == MOST_BEHAVIORS:
            raise ExportError(
                f"{exporter.name} acts on sizes in more than {MOST_BEHAVIORS} ways",
                value=f"the last is {_text(traced)}",
                fix='where=["..."], which leaves out those that never come',
            )
        places = {text: place for place, text in exporter.dims(*example)}
        found.append(ExportedBehavior(_text(traced), _conditions(traced, places), exporter.finish(traced)))
        waiting.extend(_neighbours(exporter, traced, places, example))
    return ExportedBehaviors(found, tuple(kwargs))


def _text(traced: Traced) -> str:
    recording = traced.recording
    return " and ".join(recording.text(x.fact) for x in traced.limits) if recording and traced.limits else "every size"


def _conditions(traced: Traced, places: Mapping[str, tuple[int, int]]) -> tuple[Any, ...]:
    recording = traced.recording
    if recording is None:
        return ()
    symbols = {s: places[r.text] for s, r in recording.symbols.items() if r.text in places}
    return tuple(size_conditions.from_sympy(x.fact, symbols) for x in traced.limits)


def _neighbours(
    exporter: Exporter, traced: Traced, places: Mapping[str, tuple[int, int]], example: Any
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Inputs beyond each limit, as far as eager has a result for them."""
    recording = traced.recording
    declared = set(recording.facts) if recording is not None else set()
    for limit in traced.limits:
        if recording is None or limit.fact in declared:
            continue
        others = [x for x in traced.limits if x is not limit]
        for sizes in boundaries.beyond(recording, limit, others):
            wanted = {places[r.text]: int(sizes[s]) for s, r in recording.symbols.items() if r.text in places}
            if not concrete.fails(exporter.module, example[0], example[1], wanted):
                yield _resized(example, wanted)


def _resized(example: Any, sizes: Mapping[tuple[int, int], int]) -> Any:
    """The example with other sizes: its values, repeated or cut."""
    numbers = iter(range(len(concrete.leaves(example))))

    def leaf(value: Any) -> Any:
        index = next(numbers)
        if not isinstance(value, torch.Tensor):
            return value
        for dim, before in enumerate(value.shape):
            size = sizes.get((index, dim), before)
            if size != before and before == 0:
                value = value.new_zeros([*value.shape[:dim], size, *value.shape[dim + 1 :]])
            elif size != before:
                value = value.index_select(dim, torch.arange(size, device=value.device) % before)
        return value.detach()

    return concrete.map_leaves(leaf, example)
