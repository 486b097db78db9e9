"""The manifest of an artifact: what it was made from and for, compared with this process.

Owns the manifest: what the file was made from and for, and the comparison with what is here. It is text that anyone may
read; nothing of it is run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from anyshape import plain_text
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
WEIGHTS: Final = ("live", "embed", "local")  # of the callable, in the file, or: each process makes its own programs
# What is where. A name in brackets need not be there; a list has one form for all that is in it.
_PREDICATE: Final = {"text": str, "file": str, "line": int}
_PROGRAM: Final = {
    "behavior": str,
    "[predicates]": [_PREDICATE],
    "[requirements]": [str],
    "[assertions]": [str],
    "[variants]": [str],
    "[training]": bool,
}
_FORM: Final = {
    "name": str,
    "key": str,
    "environment": dict,
    "source": dict,
    "declaration": dict,
    "weights": str,
    "programs": [_PROGRAM],
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
    wrong = _misfit(manifest, _FORM, "manifest")
    if wrong is None and manifest["weights"] not in WEIGHTS:
        wrong = "the manifest's weights", manifest["weights"]
    if wrong is not None:
        raise ArtifactError(
            f"the manifest is not as every manifest is: {wrong[0]}",
            where=where,
            value=plain_text.line(repr(wrong[1]), most=80),
            fix="fetch or precompile the file again",
            code="AS050",
        )


def _misfit(value: Any, form: Any, name: str) -> tuple[str, Any] | None:
    """What does not have its form, and what is there instead."""
    if isinstance(form, list):
        if type(value) is not list:
            return name, value
        return next((w for i, v in enumerate(value) if (w := _misfit(v, form[0], f"{name}[{i}]")) is not None), None)
    if not isinstance(form, dict):
        return None if type(value) is form else (name, value)
    if type(value) is not dict:
        return name, value
    for key, inner in form.items():
        plain = key.strip("[]")
        if plain in value or plain == key:
            wrong = _misfit(value.get(plain), inner, f"{name}.{plain}")
            if wrong is not None:
                return wrong
    return None


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
                before=f"made for {plain_text.line(made.get(name), most=80)}",
                fix="precompile it here, or load it where it was made for",
                code="AS051",
            )


def check_name(manifest: Mapping[str, Any], name: str | None, where: str) -> None:
    """Refuse a file of another callable: whoever may put files in the place of others may put a true one there.

    `name` is what the caller expects; None where nothing was said that tells one callable from another.
    """
    made = manifest["name"]
    if name == made:
        return
    unsaid = "nothing says which callable it should be of"
    raise ArtifactError(
        "the artifact is of another callable" if name is not None else f"the artifact is of a callable, and {unsaid}",
        where=where,
        value=f"the file is of {plain_text.line(made, most=80)}",
        before=name,
        fix=f"anyshape.load(url, name={plain_text.line(made, most=80)!a}), if that is what you mean",
        code="AS055",
    )


def check_key(manifest: Mapping[str, Any], key: str, where: str) -> None:
    """Refuse a file that was made from something else, wherever it was found."""
    if manifest["key"] != key:
        raise ArtifactError(
            "the artifact was made from another source, declaration or options",
            where=where,
            value=f"key: {plain_text.line(manifest['key'], most=16)}",
            before=f"key: {key[:16]}",
            fix="remove it: files are not to be moved between the folders of a shared directory",
            code="AS055",
        )


def check_source(manifest: Mapping[str, Any], here: Mapping[str, str], where: str) -> None:
    """Refuse a file for a callable whose source is not the one that it was made from."""
    made = manifest["source"]
    for name in sorted({*made, *here}):
        if made.get(name) != here.get(name):
            changed = "is not the one that it was made from" if name in made and name in here else "is not in both"
            raise ArtifactError(
                f"the artifact does not belong to this callable: {plain_text.line(name)} {changed}",
                where=where,
                value=plain_text.line(here.get(name), most=80),
                before=plain_text.line(made.get(name), most=80),
                fix="precompile it again from the source as it is now",
                code="AS055",
            )
