"""Which versions of torch anyshape holds on.

Owns the one check made at import. Everything else probes for the feature it needs; this is the only place where
a version is read, because a torch outside the range fails in ways that no probe explains.
"""

from __future__ import annotations

import importlib.util
import re
from typing import Final

from anyshape.errors import UnsupportedTorchError

OLDEST: Final = (2, 11)
NEWEST: Final = (2, 15)
_FIX: Final = 'pip install "torch>=2.11,<2.16"'


def is_installed() -> bool:
    """Whether there is a torch at all; it is not imported to find out."""
    return importlib.util.find_spec("torch") is not None


def parse(version: str) -> tuple[int, int] | None:
    """Major and minor of a version such as 2.13.0+cpu or 2.15.0a0+git1234; None if it has neither."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None


def check(version: str | None = None) -> None:
    """Raise unless `version` (by default that of the installed torch) is one anyshape holds on."""
    if version is None:
        version = _installed()
    parsed = parse(version)
    if parsed is None or not OLDEST <= parsed <= NEWEST:
        raise UnsupportedTorchError(
            f"anyshape supports torch {_text(OLDEST)} to {_text(NEWEST)}; you have {version}",
            where="torch.__version__",
            value=version,
            fix=_FIX,
        )


def _installed() -> str:
    try:
        import torch
    except ImportError as error:
        raise UnsupportedTorchError(
            f"torch is not installed; anyshape supports torch {_text(OLDEST)} to {_text(NEWEST)}", fix=_FIX
        ) from error
    return str(torch.__version__)


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
