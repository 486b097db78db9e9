"""Parameters and buffers inside an artifact, as safetensors.

Owns the parameters and buffers of a module as safetensors, and a module that has nothing but them: what the code of a
program reaches for when there is no live module.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch

from anyshape.errors import ArtifactError, missing

MEMBERS = ("weights.safetensors", "weights.json")


def members(module: Any) -> dict[str, bytes]:
    """The members that hold the weights of a module."""
    if not isinstance(module, torch.nn.Module):
        what = 'weights="embed" is for modules: a function has none'
        raise ArtifactError(what, value=type(module).__name__, fix='weights="live"', code="AS007")
    tensors, listed = {}, []
    first: dict[int, str] = {}
    for kind, named in (("parameter", module.named_parameters), ("buffer", module.named_buffers)):
        for name, tensor in named(remove_duplicate=False):
            same = first.setdefault(id(tensor), name)
            listed.append({"kind": kind, "name": name, "same": same, "requires_grad": tensor.requires_grad})
            if same == name:
                tensors[name] = tensor.detach().contiguous()
    names = [n for n, _ in module.named_modules(remove_duplicate=False)]
    facts = {"modules": names, "tensors": listed, "training": module.training}
    return {MEMBERS[0]: _safetensors().save(tensors), MEMBERS[1]: json.dumps(facts, sort_keys=True).encode()}


def skeleton(found: Mapping[str, Any]) -> torch.nn.Module:
    """A module with the structure and the weights of the one that was saved, and nothing else of it."""
    facts = json.loads(bytes(found[MEMBERS[1]]))
    tensors = _safetensors().load(bytes(found[MEMBERS[0]]))
    root = torch.nn.Module()
    modules = {"": root}
    for name in facts["modules"]:
        if name:
            parent, _, last = name.rpartition(".")
            modules[name] = torch.nn.Module()
            modules[parent]._modules[last] = modules[name]
    made: dict[str, Any] = {}
    for entry in facts["tensors"]:
        parent, _, last = entry["name"].rpartition(".")
        if entry["same"] not in made:
            tensor = tensors[entry["same"]]
            parameter = entry["kind"] == "parameter"
            made[entry["same"]] = torch.nn.Parameter(tensor, entry["requires_grad"]) if parameter else tensor
        target = modules[parent]
        (target._parameters if entry["kind"] == "parameter" else target._buffers)[last] = made[entry["same"]]
    root.train(facts["training"])
    return root


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise missing("safetensors", needed_for='weights="embed"', extra="weights") from error
    return safetensors.torch
