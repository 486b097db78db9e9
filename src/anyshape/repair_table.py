"""`anyshape repairs`: what anyshape changes in torch, and what of it applies to the torch that is installed.

Owns the table on the terminal, the same as JSON, and the page of the documentation. What is changed, and why, is
declared where it is done (see `_torch/repairs/registry`).
"""

from __future__ import annotations

import collections
import json
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from anyshape.foundation import local_files

_KINDS: Final = {
    "fault": "a bug of torch, fixed",
    "meaning": "a behavior that differs from torch, required by the contract",
    "speed": "a speedup",
    "watch": "an observation without a change",
}
_STATUS: Final = ("applied", "not needed", "absent")
_HEADINGS: Final = ("repair", "torch", "phase", "on this torch", "what goes wrong without it")
_WIDTHS: Final = (46, 9, 9, 13, 0)
_TABLES: Final = re.compile(r"dispatch_table\[\w+\]")  # of bytecode, which is that of a version of Python


def entries() -> list[dict[str, Any]]:
    """Every change of torch, in the order in which they are entered, as plain data."""
    import torch

    from anyshape._torch.repairs import registry

    return [
        {
            "name": one.name,
            "kind": one.kind,
            "phase": one.phase,
            "scope": one.scope,
            "torch_with_the_fault": one.broken,
            "upstream": one.upstream,
            "symptom": one.symptom,
            "cause": one.cause,
            "cure": one.cure,
            "goes": one.goes,
            "over": list(one.over),
            "where_absent": one.absent,
            "status": one.status,
            "places": [place.text for place in one.places],
            "replaced": [place.text for place in one.held()],
            "torch": str(torch.__version__),
        }
        for one in registry.declared()
    ]


def show(*, json_file: pathlib.Path | None = None) -> None:
    """Print the table, in color where rich is installed; write the same as JSON."""
    local_files.check_writable(json_file)
    known = entries()
    if json_file is not None:
        with local_files.writing(json_file):
            json_file.write_text(json.dumps(known, indent=2) + "\n")
    _print(known)
    print("\n" + sentence(known))


def sentence(known: Sequence[dict[str, Any]]) -> str:
    """The totals."""
    names = sum(len(one["replaced"]) for one in known if one["status"] == "applied")
    counts = collections.Counter(one["status"] for one in known)
    of = ", ".join(f"{counts[status]} {status}" for status in _STATUS)
    return (
        f"torch {known[0]['torch']}: {len(known)} repairs, {of}; {names} names of torch are replaced, each only while "
        "anyshape works, and none in stock torch.compile."
    )


def _cells(known: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    for one in known:
        versions = one["torch_with_the_fault"] or one["kind"]
        yield one["name"], versions, one["phase"], one["status"], one["symptom"]


def _print(known: Sequence[dict[str, Any]]) -> None:
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        for cells in [_HEADINGS, *_cells(known)]:
            print(" ".join(f"{cell:<{width}}" for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip())
        return
    from rich.text import Text

    table = Table()
    for heading in _HEADINGS:
        table.add_column(heading, no_wrap=heading != _HEADINGS[-1])
    for cells in _cells(known):
        table.add_row(*map(Text, cells), style="" if cells[3] == "applied" else "dim")
    console = Console()
    console.width = max(console.width, 140)
    console.print(table)


def page() -> str:
    """`docs/reference/repairs.md`: the same on every torch."""
    known = entries()
    lines = [
        "# Repairs of torch",
        "",
        "This page lists every patch of torch that anyshape applies while it captures, compiles, exports or",
        "loads. It is generated from the declarations in `src/anyshape/_torch/` by `python -m",
        "anyshape.repair_table`.",
        "",
        "A patch applies only in the thread that captures, and is removed when the capture ends. So stock",
        "`torch.compile` in the same process is not affected. `anyshape repairs` shows for each patch whether",
        "it is applied on the installed torch, absent, or not needed. `anyshape repairs --json FILE` writes",
        "all details as JSON.",
        "",
    ]
    for kind, title in _KINDS.items():
        own = [one for one in known if one["kind"] == kind]
        if own:
            lines += [f"## {title[0].upper()}{title[1:]}", ""]
        for one in own:
            lines += [f"### {one['name']}", "", *_about(one), ""]
    return "\n".join(lines)


def _about(one: dict[str, Any]) -> Iterator[str]:
    yield f"{one['symptom']}"
    yield ""
    versions = f"torch {one['torch_with_the_fault']}, {one['upstream']}; " if one["torch_with_the_fault"] else ""
    yield f"- {versions}{one['phase']}"
    if one["cause"]:
        yield f"- cause: {one['cause']}"
    yield f"- cure: {one['cure']}"
    yield f"- can be removed: {one['goes']}"
    replaces = dict.fromkeys(_TABLES.sub("dispatch_table[...]", place) for place in one["places"])
    yield f"- replaces: {', '.join(f'`{place}`' for place in replaces)}"
    if one["over"]:
        yield f"- on top of: {', '.join(f'`{name}`' for name in one['over'])}"
    if one["where_absent"] == "raise":
        yield "- where torch has no such name, the first capture raises"


def main() -> None:
    """Write the page."""
    found = pathlib.Path(__file__).parents[2] / "docs" / "reference" / "repairs.md"
    found.write_text(page())


if __name__ == "__main__":
    main()
