"""Opening an artifact: the order of its checks, before anything is unpickled or mapped.

Owns the order of the checks: the limits, the digest of the whole file, the signature, the form of the manifest, every
member's digest, and what the file was made for. Only then is there anything to unpickle, import or map.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from anyshape.artifact import container, manifest, storage, trust
from anyshape.artifact.container import Contents


def open_file(
    url: str | os.PathLike[str], *, key: Any = None, trusted: bool = False, here: Mapping[str, str]
) -> Contents:
    """A file at a path or URL, checked from end to end.

    Only a local file can lie in a trusted directory, and what is judged are the bytes that were read, not their name.
    """
    where = os.fsdecode(url)
    path = storage.local_path(where)
    data = trust.read_trusted(path) if path is not None and key is None and not trusted else None
    if data is None:
        trust.checker(key, trust=trusted, where=where)  # what is no key is refused before anything is read
        return open_bytes(
            storage.read(where, check=container.check_beginning), where=where, key=key, trusted=trusted, here=here
        )
    return open_bytes(data, where=where, trusted=True, here=here)


def open_bytes(data: bytes, *, where: str, key: Any = None, trusted: bool = False, here: Mapping[str, str]) -> Contents:
    """The same of bytes that are at hand."""
    contents = container.unpack(data, where=where, check=trust.checker(key, trust=trusted, where=where))
    manifest.check_form(contents.manifest, where)
    manifest.check_environment(contents.manifest, here, where)
    return contents
