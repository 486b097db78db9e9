"""A recording as bytes, so that sizes can be verified after loading.

Owns how a recording leaves the process: all that an admission asks of it, so that classes are verified after loading as
they are before. A node that cannot be written (a call of yours without a name) is kept as one that cannot be repeated.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
from typing import Any

import torch

from anyshape.assumptions.answers import NodeRecord
from anyshape.assumptions.recording import Recording

_KEPT = (
    "symbols",
    "hints",
    "actuals",
    "predicates",
    "requirements",
    "facts",
    "aot_decisions",
    "aot_contradictory",
    "loose_strides",
    "writes",
    "out_calls",
    "copied",
    "reads_strides",
    "differentiates",
    "on_gpu",
)


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch._ops.OpOverload):
            return _overload, (value._schema.name, value._overloadname)
        return NotImplemented


def _overload(name: str, overload: str) -> Any:
    namespace, _, op = name.partition("::")
    return getattr(getattr(getattr(torch.ops, namespace), op), overload)


def dumps(value: Any) -> bytes:
    """Pickled, torch's own operators by name."""
    file = io.BytesIO()
    _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getvalue()


def state(recording: Recording) -> dict[str, Any]:
    """All of a recording that is asked for after a capture."""
    kept = {name: getattr(recording, name) for name in _KEPT}
    kept["nodes"] = [_written(n) for n in recording.nodes]
    kept["aten"] = [_written(n) for n in recording.aten]
    kept["steps"] = [_written(n) for n in recording.steps]
    kept["assertions"] = dict(recording.oblivious.assertions)
    kept["oblivious"] = set(recording.oblivious.symbols)
    return kept


def restored(kept: dict[str, Any]) -> Recording:
    """A recording with what was kept of it; it can be asked and not written to."""
    recording = Recording(locate=lambda: ("framework", ""), retrace=RuntimeError)
    for name in (*_KEPT, "nodes", "aten", "steps"):
        setattr(recording, name, kept[name])
    recording.oblivious.assertions = kept["assertions"]
    recording.oblivious.symbols = kept["oblivious"]
    return recording


def _written(node: NodeRecord) -> NodeRecord:
    try:
        dumps(node)
    except Exception:
        name = getattr(node.call, "__name__", str(node.call))  # with its overload, which tells calls apart
        return dataclasses.replace(node, call=name, args=None, kwargs=None, result=None, log=None, opaque=True)
    return node
