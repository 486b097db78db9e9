"""Text of others, made safe to show: control characters are shown by their codes.

Owns what becomes of characters that a terminal would obey, that no encoding has, or that change the order of those
around them: they are shown by their codes. Knows nothing of where the text comes from.
"""

from __future__ import annotations

from typing import Any

_LONGEST = 400  # characters of a line that anybody reads


def line(value: Any, *, most: int = _LONGEST) -> str:
    """One line, whatever is in it, and not a long one."""
    text = str(value)
    return _shown(text if len(text) <= most else text[: most - 3] + "...", keep="")


def lines(text: str) -> str:
    """The same of text that has lines of its own."""
    return _shown(text, keep="\n\t")


def _shown(text: str, *, keep: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)
