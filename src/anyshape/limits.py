"""How much is remembered, at most.

Owns the limits that the environment may set. Each is read where what it bounds is made, so that a value which is none
is an error of that call. Knows nothing of torch.
"""

from __future__ import annotations

import os

from anyshape.errors import DeclarationError

KEYS = "ANYSHAPE_KEYS"
VARIANTS = "ANYSHAPE_VARIANTS"
VARIANT_BYTES = "ANYSHAPE_VARIANT_BYTES"
BUCKETS = "ANYSHAPE_BUCKETS"
CUDA_GRAPHS = "ANYSHAPE_CUDA_GRAPHS"
_DEFAULTS = {KEYS: 100_000, VARIANTS: 8, VARIANT_BYTES: 1 << 30, BUCKETS: 30, CUDA_GRAPHS: 64}


def keys() -> int:
    """Sizes that a program or a callable remembers; when there are as many, it forgets them and learns anew."""
    return _read(KEYS, least=1)


def variants() -> int:
    """Sizes of a program that have code of their own; the one that is called least makes room."""
    return _read(VARIANTS, least=1)


def buckets() -> int:
    """Buckets of a program that have code, with `specialize="buckets"`."""
    return _read(BUCKETS, least=0)


def variant_bytes() -> int:
    """Code of variants that a process loads; none of it can be unloaded, so there are no more of them then."""
    return _read(VARIANT_BYTES, least=0)


def cuda_graphs() -> int:
    """Sets of sizes of a compiled graph that are recorded."""
    return _read(CUDA_GRAPHS, least=0)


def _read(name: str, *, least: int) -> int:
    text = os.environ.get(name)
    if text is None:
        return _DEFAULTS[name]
    if not text.strip().isdecimal() or int(text) < least:
        raise DeclarationError(
            f"{name} is a whole number from {least} on",
            where=f"the environment variable {name}",
            value=repr(text),
            fix=f"export {name}={_DEFAULTS[name]}",
            code="AS007",
        )
    return int(text)
