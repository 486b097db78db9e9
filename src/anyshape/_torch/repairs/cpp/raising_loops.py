"""Index checks in OpenMP loops, raised after the loop.

Owns one repair: Inductor's CPU code checks indices where it uses them and throws (2.11 to 2.15). Nothing can be thrown
out of a loop that several threads run: it ends the process. What is thrown there is kept until the loop is done.
"""

from __future__ import annotations

import re

_PARALLEL = "#pragma omp parallel"
_LOOP = re.compile(r"\s*#pragma omp for( collapse\((\d+)\))?")
_THROWS = "_CHECK("
_KEPT = "anyshape_thrown"
_CATCH = f"}} catch (...) {{\n#pragma omp critical\nif (!{_KEPT}) {_KEPT} = std::current_exception();\n}}"


def with_errors_kept(source: str) -> str:
    """The source of a kernel whose parallel loops throw when they are done; unchanged where it is not understood."""
    if _PARALLEL not in source or _THROWS not in source:
        return source
    lines = source.split("\n")
    try:
        for number in range(len(lines) - 1, -1, -1):
            if lines[number].strip().startswith(_PARALLEL):
                _wrap(lines, number)
    except ValueError:
        return source
    return "\n".join(lines)


def _wrap(lines: list[str], start: int) -> None:
    """The parallel block that is announced in this line."""
    end = _end(lines, _opening(lines, start))
    for number in range(end, start, -1):
        loop = _LOOP.match(lines[number])
        if loop is None:
            continue
        opening = number
        for _ in range(int(loop[2] or 1)):
            opening = _opening(lines, opening + 1)
        closing = _end(lines, opening)
        if any(_THROWS in line for line in lines[opening:closing]):
            lines[closing] = f"{_CATCH}\n{lines[closing]}"
            lines[opening] = f"{lines[opening]}\ntry {{"
    lines[end] = f"{lines[end]}\nif ({_KEPT}) std::rethrow_exception({_KEPT});\n}}"
    lines[start] = f"{{\nstd::exception_ptr {_KEPT};\n{lines[start]}"


def _opening(lines: list[str], start: int) -> int:
    """The next line that is a brace, which opens a block: its braces have lines of their own."""
    for number in range(start, len(lines)):
        if lines[number].strip() == "{":
            return number
    raise ValueError("no block")


def _end(lines: list[str], opening: int) -> int:
    depth = 0
    for number in range(opening, len(lines)):
        depth += lines[number].count("{") - lines[number].count("}")
        if depth == 0:
            return number
    raise ValueError("a block without an end")
