"""Signatures and trusted directories: whose artifacts are loaded.

Owns signatures (HMAC-SHA-256 with a secret of yours, or Ed25519 with a pair of keys) and the directories that are
trusted. An artifact holds code that runs with all your rights when it is loaded: a file without a signature that you
can check is refused unless you say otherwise.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable
from typing import Any, Final

from anyshape.artifact.container import MOST_BYTES
from anyshape.declaration import place
from anyshape.errors import ArtifactError, missing
from anyshape.foundation import local_files

VARIABLE: Final = "ANYSHAPE_TRUSTED"  # directories, separated as in PATH
SHORTEST_KEY: Final = 16
_HMAC: Final = b"hmac-sha256:"
_ED25519: Final = b"ed25519:"


def signer(key: Any) -> Callable[[bytes], bytes] | None:
    """What signs with `key`: bytes for HMAC, an Ed25519PrivateKey of `cryptography`; None for no key."""
    if key is None:
        return None
    if isinstance(key, (bytes, bytearray)):
        secret = _secret(key)
        return lambda signed: _HMAC + hmac.new(secret, signed, hashlib.sha256).digest()
    if not _is_ed25519(key, "Ed25519PrivateKey"):
        raise _not_a_key(key, "an Ed25519PrivateKey")
    return lambda signed: _ED25519 + key.sign(signed)


def read_word(trust: Any) -> bool:
    """What was said of trusting a file: nothing that is merely true, such as "no", is taken for a word."""
    if type(trust) is bool:
        return trust
    raise ArtifactError(
        "trust is True or False: whether the code in a file may run",
        where="trust",
        value=repr(trust)[:80],
        fix="anyshape.load(url, key=...), or trust=True if you made the file yourself",
        code="AS007",
    )


def read_trusted(path: str) -> bytes | None:
    """The bytes of a local file, if it lies in a directory that is trusted and nobody else may write to."""
    for directory in _directories():
        if os.path.isabs(directory):
            data = local_files.read_closed(path, directory, most=MOST_BYTES)
            if data is not None:
                return data
    return None


def _directories() -> list[str]:
    return [d for d in os.environ.get(VARIABLE, "").split(os.pathsep) if d]


def checker(key: Any, *, trust: bool, where: str) -> Callable[[bytes, bytes], None]:
    """What is asked of a signature before anything else of a file is believed."""
    if key is None:
        return lambda signed, signature: _require_trust(where, trust=trust, signature=signature)
    if isinstance(key, (bytes, bytearray)):
        secret = _secret(key)

        def check(signed: bytes, signature: bytes) -> None:
            expected = _HMAC + hmac.new(secret, signed, hashlib.sha256).digest()
            if not hmac.compare_digest(expected, signature):
                raise _not_signed(where, signature)

        return check
    if not _is_ed25519(key, "Ed25519PublicKey"):
        raise _not_a_key(key, "an Ed25519PublicKey")

    def check_pair(signed: bytes, signature: bytes) -> None:
        from cryptography.exceptions import InvalidSignature

        try:
            if not signature.startswith(_ED25519):
                raise InvalidSignature
            key.verify(signature[len(_ED25519) :], signed)
        except InvalidSignature:
            raise _not_signed(where, signature) from None

    return check_pair


def kind(signature: bytes) -> str:
    """What a signature says it is; nothing has been checked."""
    for prefix in (_HMAC, _ED25519):
        if signature.startswith(prefix):
            return prefix.decode().rstrip(":")
    return "unknown" if signature else "none"


def _require_trust(where: str, *, trust: bool, signature: bytes) -> None:
    if trust:
        return
    what = "is not signed" if not signature else "is signed, and no key was given to check it with"
    unheard = [d for d in _directories() if not os.path.isabs(d)]
    ignored = f"; ignored in {VARIABLE}: {unheard[0]!r}, which is not a whole path" if unheard else ""
    raise ArtifactError(
        f"the artifact holds code, and it {what}",
        where=where,
        value=f"signature: {kind(signature)}{ignored}",
        fix=f'anyshape.load(url, key=...), or trust=True if you made it yourself, or {VARIABLE}="{_parent(where)}"',
        code="AS053",
    )


def _parent(where: str) -> str:
    try:
        return os.path.dirname(os.path.abspath(where)) if "://" not in where else "a directory of yours"
    except OSError:  # the working directory is gone
        return "a directory of yours"


def _not_signed(where: str, signature: bytes) -> ArtifactError:
    return ArtifactError(
        "the artifact is not signed with this key",
        where=where,
        value=f"signature: {kind(signature)}",
        fix="load it with the key that it was saved with, or fetch it from where you trust",
        code="AS053",
    )


def _secret(key: bytes | bytearray) -> bytes:
    if len(key) < SHORTEST_KEY:
        raise ArtifactError(
            "the key is too short to keep a secret",
            where="key",
            value=f"{len(key)} bytes",
            fix="key=secrets.token_bytes(32), kept where only you can read it",
            code="AS007",
        )
    return bytes(key)


def _not_a_key(key: Any, wanted: str) -> ArtifactError:
    # The value itself is not shown: it may be a secret.
    came = f"a text of {len(key)} characters" if isinstance(key, str) else place.kind(key)
    return ArtifactError(
        f"a key is bytes, for HMAC-SHA-256, or {wanted} of cryptography; this is {came}",
        where="key",
        value=type(key).__name__,
        fix='key=pathlib.Path("secret.key").read_bytes()',
        code="AS007",
    )


def _is_ed25519(key: Any, name: str) -> bool:
    """Without cryptography there is no such key; a value from elsewhere is not a reason to ask for the package."""
    return type(key).__module__.startswith("cryptography.") and isinstance(key, _ed25519(name))


def _ed25519(name: str) -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise missing("cryptography", needed_for="a key that is not bytes", extra="sign") from error
    return getattr(ed25519, name)
