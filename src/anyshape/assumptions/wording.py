"""Sizes and relations (`L['x'].size()[0]`) in the words of the user: `x.shape[0]`.

Owns how the place of a size (`L['x'].size()[0]`) and a relation between sizes are written for people.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a process that only serves has no use for it
    import sympy


def describe_source(name: str) -> str:
    """L['x'].size()[0] as x.shape[0]."""
    text = re.sub(r"^[LG]\['(\w+)'\]", r"\1", name)
    text = re.sub(r"\.size\(\)\[(\d+)\]", r".shape[\1]", text)
    text = re.sub(r"\.stride\(\)\[(\d+)\]", r".stride(\1)", text)
    return re.sub(r"\._(?:modules|parameters|buffers)\['(\w+)'\]", r".\1", text)


_OPERATORS = {"Equality": "==", "Unequality": "!=", "StrictGreaterThan": ">", "StrictLessThan": "<"}
_OPERATORS |= {"GreaterThan": ">=", "LessThan": "<="}
_WORDS = {"And": " and ", "Or": " or "}


def relation_text(expr: sympy.Basic) -> str:
    kind = type(expr).__name__
    if kind == "Not":
        return f"not ({relation_text(expr.args[0])})"
    if kind in _WORDS:
        return _WORDS[kind].join(f"({relation_text(a)})" for a in sorted(expr.args, key=str))
    if kind == "Equality" and type(expr.args[0]).__name__ == "Max" and len(expr.args[0].args) == 2:
        least, other = expr.args[0].args
        if least.is_number and expr.args[1].is_number:  # at least one part, say, and so many in this program
            return f"{other} {'<=' if expr.args[1] == least else '=='} {expr.args[1]}"
    operator = _OPERATORS.get(kind)
    if operator:
        return f"{expr.args[0]} {operator} {expr.args[1]}"
    return str(expr)
