"""`anyshape help CODE`: the page of an error or of a finding, as text.

Owns where the pages are: beside the package in an installed wheel, in `docs/` of a checkout. Knows nothing of torch.
"""

from __future__ import annotations

import difflib
import pathlib
import re
from collections.abc import Collection

from anyshape.errors import CODES, HELP, NotCompilableError

_PACKAGE = pathlib.Path(__file__).parent
_PLACES = (_PACKAGE / "pages", _PACKAGE.parents[1] / "docs")
_FINDING = re.compile(r"^## (D\d{3}):.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]+)\]\(([^)#]*)(#[^)]*)?\)")


def page(code: str) -> str:
    """The page of a code such as AS020 or D130, without markup that only a browser follows."""
    wanted = code.strip().upper()
    if wanted in CODES:
        return plain(_read(f"errors/{wanted}.md"))
    parts = findings()
    if wanted in parts:
        return plain(parts[wanted])
    known = [*CODES, *parts]
    close = difflib.get_close_matches(wanted, known, 1) or ["AS020"]
    raise NotCompilableError(
        f"there is no page of this code: errors are {min(CODES)} to {max(CODES)}, findings {_range(parts)}",
        where="anyshape help CODE",
        value=code,
        fix=f"{HELP} {close[0]}",
        code="AS007",
    )


def _range(parts: Collection[str]) -> str:
    return f"{min(parts)} to {max(parts)}" if parts else "D101 and on"


def index() -> str:
    """Every code, and what it means."""
    return "\n".join(f"{code}  {meaning}" for code, meaning in CODES.items())


def findings() -> dict[str, str]:
    """The part of each finding of the doctor, by its code."""
    return {m[1]: m[0] for m in _FINDING.finditer(_read("reference/findings.md"))}


def plain(text: str) -> str:
    """A link to another code becomes that code, and any other link its words."""
    return _LINK.sub(lambda m: m[1], text).strip() + "\n"


def _read(name: str) -> str:
    for place in _PLACES:
        if (place / name).is_file():
            return (place / name).read_text(encoding="utf-8")
    raise NotCompilableError(
        "the pages of the documentation were not installed with this package",
        where=str(_PLACES[0]),
        value=name,
        fix="pip install --force-reinstall anyshape",
        code="AS007",
    )
