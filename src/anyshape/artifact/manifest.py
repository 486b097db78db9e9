"""What an artifact says of itself.

Owns the manifest: what the file was made from and for, and the comparison with what is here. It is text that anyone may
read; nothing of it is run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from anyshape.errors import ArtifactError

WARNING: Final = "this file holds executable code: loading it runs code with all your rights"

# What must be the same where a file is loaded, and how people call it.
ENVIRONMENT: Final = {
    "anyshape": "anyshape",
    "torch": "torch",
    "python": "Python",
    "platform": "the platform",
    "cpu": "the instruction set of the CPU",
    "device": "the device capability",
}
_TYPES: Final[dict[str, type | tuple[type, ...]]] = {
    "name": str,
    "key": str,
    "environment": dict,
    "source": dict,
    "declaration": dict,
    "weights": str,
    "programs": list,
}


def compose(
    *,
    name: str,
    environment: Mapping[str, str],
    source: Mapping[str, str],
    declaration: Mapping[str, Any],
    weights: str,
    programs: list[dict[str, Any]],
    key: str,
) -> dict[str, Any]:
    """The manifest of a new file, without its members."""
    return {
        "warning": WARNING,
        "name": name,
        "key": key,
        "environment": dict(environment),
        "source": dict(source),
        "declaration": dict(declaration),
        "weights": weights,
        "programs": programs,
    }


def key_of(*parts: Any) -> str:
    """The key of what a file is made from: the same in every process."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def check_form(manifest: Mapping[str, Any], where: str) -> None:
    """Refuse a manifest that lacks something or has something else there."""
    for name, kind in _TYPES.items():
        if not isinstance(manifest.get(name), kind):
            raise ArtifactError(
                f"the manifest says nothing of its {name}",
                where=where,
                value=repr(manifest.get(name))[:80],
                fix="fetch or precompile the file again",
                code="AS050",
            )


def check_environment(manifest: Mapping[str, Any], here: Mapping[str, str], where: str) -> None:
    """Refuse a file that was made for something else than what is here."""
    made = manifest["environment"]
    for name, text in ENVIRONMENT.items():
        # Of devices there may be several here, and the file needs one.
        fits = made.get(name) in here[name].split(", ") if name == "device" else made.get(name) == here[name]
        if not fits:
            raise ArtifactError(
                f"the artifact was made for another {text.removeprefix('the ')}",
                where=where,
                value=f"{text} here is {here[name]}",
                before=f"made for {str(made.get(name))[:80]}",
                fix="precompile it here, or load it where it was made for",
                code="AS051",
            )


def check_source(manifest: Mapping[str, Any], here: Mapping[str, str], where: str) -> None:
    """Refuse a file for a callable whose source is not the one that it was made from."""
    made = manifest["source"]
    for name in sorted({*made, *here}):
        if made.get(name) != here.get(name):
            changed = "is not the one that it was made from" if name in made and name in here else "is not in both"
            raise ArtifactError(
                f"the artifact does not belong to this callable: {name} {changed}",
                where=where,
                value=str(here.get(name))[:80],
                before=str(made.get(name))[:80],
                fix="precompile it again from the source as it is now",
                code="AS055",
            )
