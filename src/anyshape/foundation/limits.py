"""Limits of caches and counters, read from the environment.

Owns the limits that the environment may set. Each is read where what it bounds is made, so that a value which is none
is an error of that call. Knows nothing of torch.
"""

from __future__ import annotations

import contextlib
import os

from anyshape import plain_text
from anyshape.errors import DeclarationError

KEYS = "ANYSHAPE_KEYS"
VARIANTS = "ANYSHAPE_VARIANTS"
VARIANT_BYTES = "ANYSHAPE_VARIANT_BYTES"
BUCKETS = "ANYSHAPE_BUCKETS"
CUDA_GRAPHS = "ANYSHAPE_CUDA_GRAPHS"
PATIENCE = "ANYSHAPE_PATIENCE"
_LONGEST = 1e6  # seconds; the system cannot wait for any number of them
_MOST_DIGITS = 18
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


def patience() -> float:
    """Seconds without a sign of life after which a rank that compiles is taken for dead."""
    text = os.environ.get(PATIENCE, "60")
    with contextlib.suppress(ValueError):
        if 0 < float(text) <= _LONGEST:
            return float(text)
    raise _wrong(PATIENCE, text, "a number of seconds", "60")


def _read(name: str, *, least: int) -> int:
    text = os.environ.get(name)
    if text is None:
        return _DEFAULTS[name]
    if not text.strip().isdecimal() or len(text) > _MOST_DIGITS or int(text) < least:
        raise _wrong(name, text, f"a whole number from {least} on", _DEFAULTS[name])
    return int(text)


def _wrong(name: str, text: str, wanted: str, default: object) -> DeclarationError:
    where = f"the environment variable {name}"
    fix = f"export {name}={default}"
    return DeclarationError(
        f"{name} is {wanted}", where=where, value=plain_text.line(repr(text)), fix=fix, code="AS007"
    )
