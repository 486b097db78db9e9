"""Masked vector loads from an empty tensor (null data_ptr).

Owns one repair: a vector that Inductor's CPU code loads under a mask, as for `F.pad`, may reach beyond the tensor
(2.11 to 2.15), in lanes that are stored nowhere. A tensor without elements has no address to reach beyond, and the
process ends. It is given one.
"""

from __future__ import annotations

import re

_MASKED = ".all_zero()"
_INPUT = re.compile(r"const ([\w:]+)\* (in_ptr\d+)")
_NOTHING = "alignas(64) static const char anyshape_nothing[4096] = {};"


def with_addresses(source: str) -> str:
    """The source of a kernel that loads under masks, with an address for each input that has none."""
    start = source.rfind('extern "C"')
    opening = source.find("{", start)
    inputs = _INPUT.findall(source[start:opening]) if _MASKED in source and start >= 0 else []
    if not inputs:
        return source
    given = [
        f"if (!{name}) {name} = reinterpret_cast<const {kind}*>(anyshape_nothing + 2048);" for kind, name in inputs
    ]
    return "\n".join([source[: opening + 1], _NOTHING, *given, source[opening + 1 :].lstrip("\n")])
