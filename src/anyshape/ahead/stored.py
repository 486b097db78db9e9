"""One program as it is written to a file.

Owns what of a program goes into which member, and back: the graph as text, what takes a call apart, what was assumed,
and the compiled code with its kernels.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Mapping
from typing import Any

from anyshape._torch import records
from anyshape._torch.aliases import Restorer
from anyshape._torch.bundles import Bundle
from anyshape._torch.forms import Form
from anyshape._torch.frames import Frame
from anyshape._torch.raised import Raises
from anyshape.answers import InputRecord
from anyshape.programs import Program


@dataclasses.dataclass(frozen=True)
class StoredVariant:
    """Code for exact sizes."""

    key: tuple[Any, ...]
    text: str
    bundle: Bundle


@dataclasses.dataclass(frozen=True)
class Stored:
    """A program, ready to be written or just read."""

    view: Program
    graph: str
    frame: Frame
    form: Form
    recording: Mapping[str, Any]
    inputs: tuple[InputRecord, ...]
    restore: Restorer | None
    raises: Raises | None
    numbers: tuple[Any, ...]
    known: Mapping[tuple[int, ...], bool]  # keys that were verified when it was made
    apart: bool  # no two arguments may share memory: it writes
    key_parts: tuple[str, ...]  # of a variant's key
    general: Bundle
    variants: tuple[StoredVariant, ...]

    def members(self, prefix: str) -> dict[str, bytes]:
        """The members of a file that hold it; kernels are shared by all programs of the file."""
        state = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        made = {f"{prefix}/graph.txt": state.pop("graph").encode()}
        bundles = [state.pop("general"), *(v.bundle for v in self.variants)]
        state["variants"] = [(v.key, v.text) for v in self.variants]
        state["kernels"] = [sorted(b.kernels) for b in bundles]
        made[f"{prefix}/state.pkl"] = records.dumps(state)
        for i, bundle in enumerate(bundles):
            made[f"{prefix}/code-{i}.pkl"] = bundle.entry
            made.update({f"kernels/{key}.so": code for key, code in sorted(bundle.kernels.items())})
        return made

    @classmethod
    def read(cls, members: Mapping[str, Any], prefix: str) -> Stored:
        """From the members of a file that has been checked and is trusted."""
        state = pickle.loads(members[f"{prefix}/state.pkl"])
        kernels = state.pop("kernels")
        bundles = [
            Bundle(bytes(members[f"{prefix}/code-{i}.pkl"]), {k: bytes(members[f"kernels/{k}.so"]) for k in names})
            for i, names in enumerate(kernels)
        ]
        keys = state.pop("variants")
        variants = tuple(StoredVariant(k, t, b) for (k, t), b in zip(keys, bundles[1:], strict=True))
        graph = bytes(members[f"{prefix}/graph.txt"]).decode()
        return cls(**state, graph=graph, general=bundles[0], variants=variants)

    def summary(self) -> dict[str, Any]:
        """What the manifest says of it."""
        view = self.view
        return {
            "behaviour": view.behaviour,
            "predicates": [dataclasses.asdict(p) for p in view.predicates],
            "requirements": list(view.requirements),
            "assertions": list(view.assertions),
            "variants": [v.text for v in self.variants],
            "training": bool(self.form.state[0]),
        }
