"""One program as members of an artifact: frame, call signature, recording, compiled code.

Owns what of a program goes into which member, and back: the graph as text, what takes a call apart, what was assumed,
and the compiled code with its kernels. What was assumed is read when it is asked for: expressions and the calls to be
repeated need the modules of a compiler, and a call whose sizes answer as captured does not need them.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anyshape._torch.bundle import frame_bytes
from anyshape._torch.bundle.code_bytes import Bundle
from anyshape._torch.runtime import call_signature
from anyshape.programs import Program

if TYPE_CHECKING:
    from anyshape._torch.repairs.functionalization.output_aliases import Restorer
    from anyshape._torch.runtime.eager_errors import Raises
    from anyshape.admission.admission import Admission
    from anyshape.assumptions.answers import InputRecord
    from anyshape.assumptions.recording import Recording


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
    frame: frame_bytes.Frame
    form: call_signature.Form
    sources: tuple[str, ...]  # where the inputs come from
    parts: tuple[str, ...]  # of a key
    known: Mapping[tuple[int, ...], bool]  # keys that were verified when it was made
    admits: tuple[str, tuple[str, ...]]  # a function of a key and what its answers say
    assumed: bytes  # what was assumed, pickled
    restore: Restorer | None
    raises: Raises | None
    asserts: bool
    apart: bool  # no two arguments may share memory: it writes
    key_parts: tuple[str, ...]  # of a variant's key
    general: Bundle
    variants: tuple[StoredVariant, ...]

    def recording(self) -> tuple[Recording, tuple[InputRecord, ...], tuple[Any, ...]]:
        """What was assumed, of which inputs, and which numbers the graph is given."""
        from anyshape._torch.bundle import recording_bytes

        kept, inputs, numbers = pickle.loads(self.assumed)
        return recording_bytes.restored(kept), inputs, numbers

    def admission(self) -> Admission:
        from anyshape.admission.admission import Admission

        recording, inputs, _ = self.recording()
        admission = Admission(recording, inputs)
        admission.known.update(self.known)
        return admission

    def members(self, prefix: str) -> dict[str, bytes]:
        """The members of a file that hold it; kernels are shared by all programs of the file."""
        from anyshape._torch.bundle import recording_bytes

        state = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        made = {f"{prefix}/graph.txt": state.pop("graph").encode(), f"{prefix}/assumed.pkl": state.pop("assumed")}
        bundles = [state.pop("general"), *(v.bundle for v in self.variants)]
        state["variants"] = [(v.key, v.text) for v in self.variants]
        state["code"] = [(b.is_plain, sorted(b.kernels)) for b in bundles]
        made[f"{prefix}/state.pkl"] = recording_bytes.dumps(state)
        for i, bundle in enumerate(bundles):
            made[f"{prefix}/code-{i}.pkl"] = bundle.entry
            made.update({f"kernels/{key}.so": code for key, code in sorted(bundle.kernels.items())})
        return made

    @classmethod
    def read(cls, members: Mapping[str, Any], prefix: str) -> Stored:
        """From the members of a file that has been checked and is trusted."""
        state = pickle.loads(members[f"{prefix}/state.pkl"])
        bundles = []
        for i, (is_plain, names) in enumerate(state.pop("code")):
            kernels = {k: bytes(members[f"kernels/{k}.so"]) for k in names}
            bundles.append(Bundle(bytes(members[f"{prefix}/code-{i}.pkl"]), kernels, is_plain))
        keys = state.pop("variants")
        variants = tuple(StoredVariant(k, t, b) for (k, t), b in zip(keys, bundles[1:], strict=True))
        graph = bytes(members[f"{prefix}/graph.txt"]).decode()
        assumed = bytes(members[f"{prefix}/assumed.pkl"])
        return cls(**state, graph=graph, assumed=assumed, general=bundles[0], variants=variants)

    def summary(self) -> dict[str, Any]:
        """What the manifest says of it."""
        view = self.view
        return {
            "behavior": view.behavior,
            "predicates": [dataclasses.asdict(p) for p in view.predicates],
            "requirements": list(view.requirements),
            "assertions": list(view.assertions),
            "variants": [v.text for v in self.variants],
            "training": bool(self.form.state[0]),
        }
