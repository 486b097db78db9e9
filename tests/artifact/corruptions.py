"""Ways to spoil an artifact file. A table of makers, so that the default suite and the long one take what they need."""

from __future__ import annotations

import hashlib
import json
import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

from anyshape.artifact import container, trust

HEADER = len(container.MAGIC) + 12


def parts(data: bytes) -> tuple[dict[str, Any], bytes, bytes]:
    """Manifest, signature and members of a file."""
    _, manifest, signature = struct.unpack_from("<III", data, len(container.MAGIC))
    at = HEADER + manifest
    return json.loads(data[HEADER:at]), data[at : at + signature], data[at + signature : -32]


def build(manifest: dict[str, Any], signature: bytes, members: bytes, *, version: int = container.FORMAT) -> bytes:
    """A file with a right digest, whatever is in it: what somebody would make who knows the format."""
    text = json.dumps(manifest).encode()
    body = container.MAGIC + struct.pack("<III", version, len(text), len(signature)) + text + signature + members
    return body + hashlib.sha256(body).digest()


def flip(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def extend(data: bytes, rng: random.Random) -> bytes:
    return data + rng.randbytes(rng.randrange(1, 64))


def zero(data: bytes, rng: random.Random) -> bytes:
    at, length = rng.randrange(len(data) - 64), 64
    # Bytes that were zero already are no corruption.
    return data[:at] + bytes(b ^ 0x55 for b in data[at : at + length]) + data[at + length :]


def swap_blocks(data: bytes, rng: random.Random) -> bytes:
    size = 48
    while True:
        a, b = sorted(rng.sample(range(0, len(data) - size, size), 2))
        one, two = data[a : a + size], data[b : b + size]
        if one != two:
            return data[:a] + two + data[a + size : b] + one + data[b + size :]


def redigested_flip(data: bytes, rng: random.Random) -> bytes:
    """A flip somewhere, and the digest of the whole file made right again."""
    body = flip(data[:-32], rng)
    return body + hashlib.sha256(body).digest()


def swapped_members(data: bytes, rng: random.Random) -> bytes:
    """The names of two members exchanged, with a right digest and a signature from before."""
    manifest, signature, members = parts(data)
    i, j = rng.sample(range(len(manifest["members"])), 2)
    listed = manifest["members"]
    listed[i]["name"], listed[j]["name"] = listed[j]["name"], listed[i]["name"]
    return build(manifest, signature, members)


def replayed_manifest(data: bytes, rng: random.Random) -> bytes:
    """The signed manifest of this file over members that were changed."""
    _, signature, members = parts(data)
    text = data[HEADER : HEADER + struct.unpack_from("<III", data, len(container.MAGIC))[1]]
    body = data[:HEADER] + text + signature + flip(members, rng)
    return body + hashlib.sha256(body).digest()


def wrong_key(data: bytes, rng: random.Random) -> bytes:
    """Signed by somebody else."""
    manifest, _, members = parts(data)
    listed, at, named = manifest.pop("members"), 0, {}
    for m in listed:
        named[m["name"]], at = members[at : at + m["bytes"]], at + m["bytes"]
    return container.pack(manifest, named, sign=trust.signer(rng.randbytes(32)))


def unsigned(data: bytes, rng: random.Random) -> bytes:
    manifest, _, members = parts(data)
    return build(manifest, b"", members)


# Spoilt by somebody who has the key: what is left are the checks of the form and of the environment.


def _resigned(key: bytes, manifest: dict[str, Any], members: bytes, version: int = container.FORMAT) -> bytes:
    text = json.dumps(manifest).encode()
    head = lambda n: container.MAGIC + struct.pack("<III", version, len(text), n)
    sign = trust.signer(key)
    assert sign is not None
    signature = sign(container.MAGIC + struct.pack("<III", container.FORMAT, len(text), 0) + text)
    body = head(len(signature)) + text + signature + members
    return body + hashlib.sha256(body).digest()


NAMES = ("../escape", "/etc/passwd", "a/../../b", "C:\\x", "a\x00b", "", ".hidden", "a//b", "link -> x", "é", "a" * 300)


def renamed(data: bytes, rng: random.Random, key: bytes) -> bytes:
    """A member whose name is a path out of wherever it might be put."""
    manifest, _, members = parts(data)
    rng.choice(manifest["members"])["name"] = rng.choice(NAMES)
    return _resigned(key, manifest, members)


def oversized(data: bytes, rng: random.Random, key: bytes) -> bytes:
    manifest, _, members = parts(data)
    rng.choice(manifest["members"])["bytes"] = rng.choice(
        [1 << 40, 1 << 62, 10**30, -1, 1.5, "12", None, True, 1 << 31]
    )
    return _resigned(key, manifest, members)


def linked(data: bytes, rng: random.Random, key: bytes) -> bytes:
    manifest, _, members = parts(data)
    rng.choice(manifest["members"])[rng.choice(["link", "symlink", "mode", "compress"])] = rng.choice(
        ["/etc/shadow", 9]
    )
    return _resigned(key, manifest, members)


def doubled(data: bytes, rng: random.Random, key: bytes) -> bytes:
    manifest, _, members = parts(data)
    manifest["members"].append(
        {"name": manifest["members"][0]["name"], "bytes": 0, "sha256": hashlib.sha256().hexdigest()}
    )
    return _resigned(key, manifest, members)


def other_environment(data: bytes, rng: random.Random, key: bytes) -> bytes:
    """For another version of torch, of Python, for another CPU or device."""
    manifest, _, members = parts(data)
    name = rng.choice(sorted(manifest["environment"]))
    manifest["environment"][name] = rng.choice(["2.11.0", "3.9", "other", 7, None, ["x"]])
    return _resigned(key, manifest, members)


def newer(data: bytes, rng: random.Random, key: bytes) -> bytes:
    manifest, _, members = parts(data)
    return _resigned(key, manifest, members, version=rng.choice([0, 2, 3, 1 << 31]))


def formless(data: bytes, rng: random.Random, key: bytes) -> bytes:
    """A manifest that lacks what every manifest has."""
    manifest, _, members = parts(data)
    name = rng.choice(["name", "key", "environment", "source", "declaration", "weights", "programs", "members"])
    manifest[name] = rng.choice([None, 7, "x" if name not in ("name", "key", "weights") else 5])
    return _resigned(key, manifest, members)


Maker = Callable[..., bytes]
BY_CHANCE: tuple[Maker, ...] = (
    flip, flip, flip, flip, truncate, truncate, extend, zero, swap_blocks, redigested_flip, redigested_flip,
    swapped_members, replayed_manifest, wrong_key, unsigned,
)  # fmt: skip
BY_AN_INSIDER: tuple[Maker, ...] = (renamed, oversized, linked, doubled, other_environment, newer, formless)


def corruptions(data: bytes, key: bytes, *, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """`count` spoilt files, each with the name of how."""
    rng = random.Random(seed)
    makers = [*BY_CHANCE, *BY_AN_INSIDER]
    for i in range(count):
        maker = makers[i % len(makers)]
        yield maker.__name__, maker(data, rng, key) if maker in BY_AN_INSIDER else maker(data, rng)
