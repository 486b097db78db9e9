"""The bytes of an artifact file: header, manifest, signature, members, digests.

Owns the bytes: a header, the manifest, a signature, the members one after another, and a digest of all of it. There is
no compression, no link and no path in it: a member is a name in the manifest, its length and its SHA-256. A file is
read strictly: every byte belongs to something that is checked, and nothing of a member is looked at before that.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from anyshape.errors import ArtifactError

MAGIC: Final = b"\x89ANYSHAPE\r\n\x1a\n"  # as PNG's: an end of line that was changed on the way shows
FORMAT: Final = 1
_LENGTHS: Final = struct.Struct("<III")  # format, length of the manifest, length of the signature
_DIGEST: Final = hashlib.sha256().digest_size
_HEADER: Final = len(MAGIC) + _LENGTHS.size

MOST_BYTES: Final = 8 << 30  # of a file
_MOST_MANIFEST: Final = 16 << 20
_MOST_SIGNATURE: Final = 4096
_MOST_MEMBERS: Final = 100_000
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*(/[A-Za-z0-9_][A-Za-z0-9_.\-]*){0,7}")


@dataclasses.dataclass(frozen=True)
class Contents:
    """A file whose every byte has been accounted for. `members` are views of it, in the order of the manifest."""

    manifest: Mapping[str, Any]
    members: Mapping[str, memoryview]
    signature: bytes
    signed: bytes  # what a signature is made over: the header and the manifest, which has the digests of the rest


def pack(
    manifest: Mapping[str, Any], members: Mapping[str, bytes], *, sign: Callable[[bytes], bytes] | None = None
) -> bytes:
    """The bytes of a file. The same content gives the same bytes."""
    listed = [
        {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in members.items()
    ]
    for entry in listed:
        _check_name(str(entry["name"]))
    text = json.dumps({**manifest, "members": listed}, sort_keys=True, separators=(",", ":")).encode()
    lengths = lambda signature: _LENGTHS.pack(FORMAT, len(text), len(signature))
    signature = sign(MAGIC + lengths(b"") + text) if sign is not None else b""
    body = b"".join([MAGIC, lengths(signature), text, signature, *members.values()])
    return body + hashlib.sha256(body).digest()


def unpack(data: bytes, *, where: str, check: Callable[[bytes, bytes], None] | None = None) -> Contents:
    """Take a file apart, or say what is wrong with it.

    `check(signed, signature)` is asked as soon as both are known, before the manifest is even read.
    """
    view = memoryview(data)
    check_beginning(bytes(view[:_HEADER]), where)
    if len(data) < _HEADER + _DIGEST:
        raise _broken("the file ends in its header", where, f"{len(data)} bytes")
    _, manifest_length, signature_length = _LENGTHS.unpack_from(data, len(MAGIC))
    if not hmac.compare_digest(hashlib.sha256(view[:-_DIGEST]).digest(), bytes(view[-_DIGEST:])):
        raise _broken("the file was altered or is cut off: its digest is another one", where, f"{len(data)} bytes")
    start = _HEADER + manifest_length
    if manifest_length > _MOST_MANIFEST or signature_length > _MOST_SIGNATURE:
        raise _unsafe("the manifest or the signature is larger than any of ours", where)
    if start + signature_length > len(data) - _DIGEST:
        raise _broken("the manifest is longer than the file", where, f"{manifest_length} bytes")
    text, signature = bytes(view[_HEADER:start]), bytes(view[start : start + signature_length])
    signed = MAGIC + _LENGTHS.pack(FORMAT, manifest_length, 0) + text
    if check is not None:
        check(signed, signature)
    manifest = _read_manifest(text, where)
    members = _members(manifest["members"], view[start + signature_length : -_DIGEST], where)
    return Contents(manifest, members, signature, signed)


def check_beginning(header: bytes, where: str) -> None:
    """Refuse what does not begin as a file of this format."""
    if header[: len(MAGIC)] != MAGIC:
        raise _broken("this is not an artifact of anyshape, or its beginning was altered", where, repr(header[:8]))
    if len(header) < _HEADER:
        raise _broken("the file ends in its header", where, f"{len(header)} bytes")
    version = _LENGTHS.unpack_from(header, len(MAGIC))[0]
    if version != FORMAT:
        raise ArtifactError(
            f"the file has format {version}, and this anyshape reads format {FORMAT}",
            where=where,
            value=version,
            before=FORMAT,
            fix="pip install --upgrade anyshape, or precompile again with this version",
            code="AS052",
        )


def _read_manifest(text: bytes, where: str) -> dict[str, Any]:
    try:
        manifest = json.loads(text.decode(), object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise _broken("the manifest cannot be read", where, str(error)[:100]) from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("members"), list):
        raise _broken("the manifest lists no members", where, type(manifest).__name__)
    return manifest


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A name that is there twice means one thing to one reader and another to the next."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name is there twice")
    return made


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")


def _members(listed: list[Any], body: memoryview, where: str) -> dict[str, memoryview]:
    if len(listed) > _MOST_MEMBERS:
        raise _unsafe(f"it has {len(listed)} members", where)
    found: dict[str, memoryview] = {}
    at = 0
    for entry in listed:
        if not isinstance(entry, dict) or set(entry) != {"name", "bytes", "sha256"}:
            raise _unsafe("a member is more or less than a name, a length and a digest", where, repr(entry)[:100])
        name, size, digest = entry["name"], entry["bytes"], entry["sha256"]
        _check_name(name, where)
        if name in found:
            raise _unsafe("a member is there twice", where, name)
        if type(size) is not int or not 0 <= size <= len(body) - at:
            raise _unsafe("a member is longer than the file", where, f"{name}: {size!r} bytes")
        member = body[at : at + size]
        if digest != hashlib.sha256(member).hexdigest():
            raise _broken("a member is not the one that the manifest lists", where, name)
        found[name], at = member, at + size
    if at != len(body):
        raise _broken("the file holds more than its manifest lists", where, f"{len(body) - at} bytes")
    return found


def _check_name(name: Any, where: str = "") -> None:
    if not isinstance(name, str) or len(name) > 255 or _NAME.fullmatch(name) is None:
        raise _unsafe("a member has a name that no member has: a path, a link or worse", where, repr(name)[:100])


def _broken(what: str, where: str, value: str | None = None) -> ArtifactError:
    return ArtifactError(what, where=where, value=value, fix="fetch or precompile the file again", code="AS050")


def _unsafe(what: str, where: str, value: str | None = None) -> ArtifactError:
    fix = "do not load it: no anyshape writes such a file"
    return ArtifactError(what, where=where, value=value, fix=fix, code="AS054")
