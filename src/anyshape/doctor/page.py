"""The report as one page that works from disk, with no network.

Owns what the page is given: the data of its charts, and the template it is made with. The charts are plotly's, whose
script is taken from the installed package and put into the page. Knows nothing of torch.
"""

from __future__ import annotations

import html
import json
import pathlib
import re
from typing import TYPE_CHECKING, Any, Final

from anyshape.doctor import guard_text
from anyshape.doctor.events import Compilation
from anyshape.errors import missing

if TYPE_CHECKING:
    from anyshape.doctor.report import Report

_TEMPLATES: Final = pathlib.Path(__file__).parent / "templates"
_BOUND = re.compile(r"^(?P<dim>[\w.\[\]'\"]+\.shape\[\d+\]) (?P<op>[<>]=?|[=!]=) (?P<number>-?\d+)$")
_FLIPPED = re.compile(r"^(?P<number>-?\d+) (?P<op>[<>]=?|[=!]=) (?P<dim>[\w.\[\]'\"]+\.shape\[\d+\])(?: <= \d+)?$")
_ROWS: Final = 2000  # distinct sets of sizes that the table shows; the charts have all of them


def render(report: Report) -> str:
    """The whole page."""
    try:
        import jinja2
    except ImportError as error:
        raise missing("jinja2", needed_for="the page of the doctor", extra="doctor") from error
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("report.html").render(
        report=report,
        findings=[_finding(f) for f in report.findings],
        programs=_programs(report),
        rows=_rows(report)[:_ROWS],
        row_count=len(_rows(report)),
        data=_embedded(data(report)),
        plotly=_plotly(),
    )


def fragment(report: Report) -> str:
    """The findings alone, for a notebook: no script, no style sheet."""
    parts = [f"<p><b>{html.escape(report.headline())}</b></p>"]
    for finding in report.findings:
        rows = [
            ("where", f"{finding.file}:{finding.line}"),
            ("about", finding.subject),
            ("why", finding.detail),
            ("cost", f"{finding.seconds:.2f} s in {finding.compiles} compilations"),
            ("remedy", finding.remedy.text),
        ]
        cells = "".join(
            f"<tr><th style='text-align:left'>{html.escape(k)}</th>"
            f"<td style='text-align:left'><code>{html.escape(v)}</code></td></tr>"
            for k, v in rows
            if v
        )
        title = html.escape(f"{finding.code} {finding.disease.title}")
        parts.append(f"<p>{title}</p><table>{cells}</table>")
    return "".join(parts)


def data(report: Report) -> dict[str, Any]:
    """What the charts draw."""
    return {
        "compilations": [_bar(c) for c in report.compilations],
        "calls": [[c.id, c.time, c.count] for c in report.calls],
        "points": [[row["id"], row["dims"], row["count"]] for row in _rows(report)],
        "borders": _borders(report),
        "names": {c.id: c.qualname or c.name for c in report.compilations},
    }


def _bar(compilation: Compilation) -> dict[str, Any]:
    why = [f"{guard_text.readable(r.guard)}" for r in compilation.reasons[:4] if r.guard]
    return {
        "id": compilation.id,
        "name": compilation.qualname or compilation.name,
        "start": round(compilation.start, 4),
        "seconds": round(compilation.seconds, 4),
        "kind": _kind(compilation),
        "why": [w if len(w) < 120 else w[:117] + "..." for w in why],
    }


def _kind(compilation: Compilation) -> str:
    if compilation.outcome != "compiled":
        return compilation.outcome
    return "recompiled" if compilation.reasons else "compiled"


def _rows(report: Report) -> list[dict[str, Any]]:
    """Distinct sizes of calls, by program, the most frequent first."""
    counts: dict[tuple[str, Any], int] = {}
    for calls in report.calls:
        key = (calls.id, calls.sizes)
        counts[key] = counts.get(key, 0) + calls.count
    found = [
        {"id": identity, "dims": _dims(sizes), "count": count, "text": _sizes_text(sizes)}
        for (identity, sizes), count in counts.items()
    ]
    return sorted(found, key=lambda row: -int(row["count"]))


def _dims(sizes: Any) -> dict[str, int]:
    return {
        f"{guard_text.argument(source)}.shape[{dim}]": int(size)
        for source, shape in sizes
        for dim, size in enumerate(shape)
    }


def _sizes_text(sizes: Any) -> str:
    return ", ".join(f"{guard_text.argument(source)} {list(shape)}" for source, shape in sizes)


def _borders(report: Report) -> list[dict[str, Any]]:
    """Where one behaviour ends and another begins, as far as it is one dim against a number."""
    texts = [text for program in report.programs for text, *_ in program.predicates]
    texts += [guard_text.readable(r.guard) for c in report.compilations for r in c.reasons if r.kind == "shape"]
    found: dict[tuple[str, float], str] = {}
    for text in texts:
        match = _BOUND.match(text) or _FLIPPED.match(text)
        if match is not None:
            found.setdefault((match["dim"], _edge(match)), text)
    return [{"dim": dim, "at": at, "text": text} for (dim, at), text in found.items()]


def _edge(match: re.Match[str]) -> float:
    """Between the last size on one side and the first on the other."""
    number, op = int(match["number"]), match["op"]
    if match.re is _FLIPPED:
        op = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(op, op)
    return number + {"<": -0.5, "<=": 0.5, ">": 0.5, ">=": -0.5}.get(op, 0.0)


def _finding(finding: Any) -> dict[str, Any]:
    from anyshape.doctor.report import excerpt, place, proof

    return {
        "value": finding,
        "place": place(finding.file, finding.line),
        "excerpt": excerpt(finding.file, finding.line),
        "proof": "" if finding.trial is None else proof(finding.trial),
    }


def _programs(report: Report) -> list[dict[str, Any]]:
    """Each program with what it assumes, and the lines where that was asked."""
    from anyshape.doctor.report import by_program, excerpt, place

    calls = by_program(report)
    found = []
    for c in report.compilations:
        reasons = [
            {
                "text": guard_text.readable(r.guard)[:300],
                "entry": r.entry,
                "place": place(r.file, r.line) if r.file else "",
            }
            for r in c.reasons[:12]
        ]
        found.append({
            "id": c.id, "name": c.qualname or c.name, "place": place(c.file, c.line), "seconds": c.seconds, "by": c.by,
            "outcome": _kind(c), "calls": calls.get(c.id, 0), "guards": c.guards, "reasons": reasons,
            "excerpt": excerpt(c.file, c.line), "predicates": [],
        })  # fmt: skip
    for p in report.programs:
        asked = [
            {"text": text, "by": by, "place": place(file, line), "excerpt": excerpt(file, line)}
            for text, by, file, line in p.predicates
        ]
        found.append({
            "id": p.behaviour, "name": p.name, "place": place(p.file, p.line), "seconds": p.seconds, "by": "anyshape",
            "outcome": "program", "calls": "", "guards": "", "reasons": [], "excerpt": excerpt(p.file, p.line),
            "predicates": asked,
        })  # fmt: skip
    return found


def _embedded(value: Any) -> str:
    """JSON that can stand in a script element."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace("\u2028", "\\u2028")


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise missing("plotly", needed_for="the charts of the doctor's page", extra="doctor") from error
    return str(get_plotlyjs())
