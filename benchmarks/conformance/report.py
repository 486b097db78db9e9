"""What the runs come to: a table by file, and each test that stock passes and anyshape does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Results = Mapping[str, Mapping[str, Any]]
HEAD = ("file", "stock passes", "anyshape passes", "on the list", "fails", "crashes", "hangs", "ran eagerly", "time")


@dataclasses.dataclass(frozen=True)
class Row:
    """The tests of a file that were run in both modes."""

    file: str
    stock: Results
    ours: Results
    reviewed: Mapping[str, str]

    @property
    def compared(self) -> list[str]:
        """Tests that stock passes, and that were run with anyshape as well."""
        return [test for test, result in self.stock.items() if result["outcome"] == "passed" and test in self.ours]

    def passed(self) -> list[str]:
        return [test for test in self.compared if self.ours[test]["outcome"] == "passed"]

    def listed(self) -> list[str]:
        """Tests that do not pass and are on the list; a crash or a hang is not excused by it."""
        missed = [t for t in self.compared if self.ours[t]["outcome"] in ("failed", "skipped", "xfailed")]
        return [test for test in missed if test in self.reviewed and not _is_hang(self.ours[test])]

    def failed(self) -> list[str]:
        known = {*self.passed(), *self.listed()}
        return [test for test in self.compared if test not in known]

    def crashed(self) -> list[str]:
        return [test for test in self.failed() if self.ours[test]["outcome"] == "crashed"]

    def hung(self) -> list[str]:
        return [test for test in self.failed() if _is_hang(self.ours[test])]

    def eager(self) -> list[str]:
        """Tests that pass, in which a call ran eagerly."""
        return [test for test in self.passed() if self.ours[test]["fallbacks"]]

    def seconds(self) -> tuple[float, float]:
        """Of stock and of anyshape, in the tests that both pass."""
        both = self.passed()
        return sum(self.stock[t]["seconds"] for t in both), sum(self.ours[t]["seconds"] for t in both)

    def needless(self) -> list[str]:
        """Tests on the list that pass."""
        return [test for test in self.passed() if test in self.reviewed]

    def cells(self) -> tuple[str, ...]:
        stock, ours = self.seconds()
        groups = (self.compared, self.passed(), self.listed(), self.failed(), self.crashed(), self.hung(), self.eager())
        return (self.file, *(str(len(g)) for g in groups), f"{ours / stock:.2f}" if stock else "")


def _is_hang(result: Mapping[str, Any]) -> bool:
    return result["outcome"] == "hung" or (result["outcome"] == "failed" and "Failed: Timeout" in result["text"])


def share(rows: Sequence[Row]) -> float:
    """Of the tests that stock passes, those that pass or are on the list."""
    compared = sum(len(row.compared) for row in rows)
    return 1.0 - sum(len(row.failed()) for row in rows) / compared if compared else 1.0


def _total(rows: Sequence[Row]) -> tuple[str, ...]:
    columns = [row.cells()[1:-1] for row in rows]
    sums = [str(sum(int(cells[i]) for cells in columns)) for i in range(len(HEAD) - 2)]
    stock, ours = (sum(row.seconds()[i] for row in rows) for i in (0, 1))
    return ("all", *sums, f"{ours / stock:.2f}" if stock else "")


def markdown(rows: Sequence[Row]) -> str:
    """The table that the docs show."""
    cells = [HEAD, ("---", *["---:"] * (len(HEAD) - 1)), *(row.cells() for row in rows), _total(rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells) + "\n"


def table(rows: Sequence[Row]) -> str:
    lines = [HEAD, *(row.cells() for row in rows), _total(rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    padded = [[cell.rjust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *cells[1:]]) for line, cells in zip(lines, padded, strict=True)
    )


def findings(rows: Sequence[Row], *, eager: bool = False) -> Iterator[str]:
    """A line for each failure, for each test that is on the list and passes, and, if asked, for each eager call."""
    for row in rows:
        for test in row.failed():
            yield f"{row.ours[test]['outcome']}: {test}\n    {why(row.ours[test])}"
        for test in row.needless():
            yield f"on the list, and passes: {test}"
        for test in row.eager() if eager else ():
            reasons = "; ".join(f"{count} x {reason}" for reason, count in row.ours[test]["fallbacks"].items())
            yield f"ran eagerly: {test}\n    {reasons[:300]}"


def why(result: Mapping[str, Any]) -> str:
    """The first line of the error."""
    errors = [line for line in result["text"].splitlines() if line.startswith("E ")]
    return (errors[0][1:].strip() if errors else result["text"].strip()[-200:].replace("\n", " "))[:220]


def proposed(row: Row, lenient: Results) -> str:
    """Entries for the list, to be reviewed: what fails, and passes once texts and counts are not compared."""
    tests = [t for t in row.failed() if lenient.get(t, {}).get("outcome") == "passed"]
    if not tests:
        return ""
    lines = [f'    "{test}", # {why(row.ours[test])}' for test in tests]
    return "\n".join(["[[reviewed]]", 'reason = ""', "tests = [", *lines, "]", ""])
