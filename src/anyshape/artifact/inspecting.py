"""`anyshape inspect` and `anyshape verify`: what is in a file, and whether it is whole and whose it is.

Owns reading a file without running any of it. Needs no torch.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping
from typing import Any

from anyshape import plain_text
from anyshape.artifact import container, manifest, storage, trust
from anyshape.foundation import interrupts, local_files


@interrupts.heeded()
def inspect(url: str) -> dict[str, Any]:
    """What is inside, without running any of it; the signature is named and not checked."""
    data = storage.read(url, check=container.check_beginning)
    contents = container.unpack(data, where=str(url))
    manifest.check_form(contents.manifest, str(url))
    return {**contents.manifest, "signature": trust.kind(contents.signature), "bytes": len(data)}


def show(url: str, *, json_file: pathlib.Path | None) -> None:
    """Print what is in a file, and write it as JSON where a file is named."""
    local_files.check_writable(json_file)
    report = inspect(url)
    print(text(report))
    if json_file is not None:
        with local_files.writing(json_file):
            json_file.write_text(json.dumps(report, indent=2, sort_keys=True) + "\n")


@interrupts.heeded()
def verify(url: str, *, key: Any = None, here: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Check every byte, the signature if there is a key, and (with `here`) that it was made for this machine."""
    data = storage.read(url, check=container.check_beginning)
    check = trust.checker(key, trust=True, where=str(url))
    contents = container.unpack(data, where=str(url), check=check)
    manifest.check_form(contents.manifest, str(url))
    if here is not None:
        manifest.check_environment(contents.manifest, here, str(url))
    signed = f"{trust.kind(contents.signature)}, checked" if key is not None else trust.kind(contents.signature)
    return {
        "file": str(url),
        "key": contents.manifest["key"],
        "members": len(contents.members),
        "bytes": len(data),
        "signature": signed if key is not None or not contents.signature else f"{signed}, not checked: no key",
        "environment": "the same" if here is not None else "not compared",
    }


def text(report: Mapping[str, Any]) -> str:
    """`inspect`'s report for people. What a file says of itself is a stranger's text: it is shown, never obeyed."""
    lines = [f"{report['name']}  ({report['bytes']:,} bytes, signature: {report['signature']})", manifest.WARNING, ""]
    lines += [f"  {manifest.ENVIRONMENT.get(n, n):32} {v}" for n, v in sorted(report["environment"].items())]
    lines += [f"  {'weights':32} {report['weights']}", f"  {'key':32} {report['key'][:16]}", ""]
    for number, program in enumerate(report["programs"]):
        lines.append(f"program {number}: {program['behavior']}")
        lines += [f"    asks {p['text']}  ({p['file']}:{p['line']})" for p in program.get("predicates", ())]
        lines += [f"    requires {r}" for r in program.get("requirements", ())]
        lines += [f"    variant for {v}" for v in program.get("variants", ())]
    lines += ["", f"{len(report['members'])} members:"]
    lines += [f"    {m['bytes']:>12,}  {m['sha256'][:12]}  {m['name']}" for m in report["members"]]
    return "\n".join(map(plain_text.line, lines))
