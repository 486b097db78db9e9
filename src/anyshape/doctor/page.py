"""The report as one page that works from disk, with no network.

Owns what the page is given: the data of its charts, and the template it is made with. The charts are drawn by plotly's
basic bundle, which lies beside the template and is put into the page compressed. Knows nothing of torch.
"""

from __future__ import annotations

import base64
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
_CHARTS: Final = _TEMPLATES / "plotly-basic.min.js.gz"
_MOST_CODE: Final = 300_000  # characters of graphs and generated code in a page; the JSON has all that was kept
_ROWS: Final = 2000  # distinct sets of sizes that the table shows; the charts have all of them


def render(report: Report) -> str:
    """The whole page."""
    check()
    import jinja2

    rows = _rows(report)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("report.html").render(
        report=report,
        findings=[_finding(f) for f in report.findings],
        programs=_programs(report),
        rows=rows[:_ROWS],
        row_count=len(rows),
        data=_embedded(data(report)),
        charts=_charts(),
    )


def check() -> None:
    """Say before anything is run that the page could not be made."""
    try:
        import jinja2  # noqa: F401
    except ImportError as error:
        raise missing("jinja2", needed_for="the page of the doctor", extra="doctor") from error


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
        "names": {c.id: c.function for c in report.compilations},
    }


def _bar(compilation: Compilation) -> dict[str, Any]:
    why = [f"{guard_text.readable(r.guard)}" for r in compilation.reasons[:4] if r.guard]
    return {
        "id": compilation.id,
        "name": compilation.function,
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
    """Where one behavior ends and another begins, as far as it is one dim against a number."""
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
    from anyshape.doctor.report import cost, excerpt, place, proof, values

    return {
        "value": finding,
        "cost": cost(finding),
        "values": values(finding),
        "compilations": [(i, anchor(i)) for i in finding.ids],
        "place": place(finding.file, finding.line),
        "excerpt": excerpt(finding.file, finding.line),
        "proof": "" if finding.trial is None else proof(finding.trial),
    }


def _programs(report: Report) -> list[dict[str, Any]]:
    """Each program with what it assumes, and the lines where that was asked."""
    from anyshape.doctor.report import by_program, change, excerpt, place

    code = _code(report)
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
            "id": c.id, "name": c.function, "place": place(c.file, c.line), "seconds": c.seconds, "by": c.by,
            "outcome": _kind(c), "calls": calls.get(c.id, 0), "guards": c.guards, "reasons": reasons,
            "excerpt": excerpt(c.file, c.line), "predicates": [], "anchor": anchor(c.id), "code": code.get(c.id, ()),
            "why": "; ".join(dict.fromkeys(change(r) for r in c.reasons[:3])),
        })  # fmt: skip
    for p in report.programs:
        asked = [
            {"text": text, "by": by, "place": place(file, line), "excerpt": excerpt(file, line)}
            for text, by, file, line in p.predicates
        ]
        found.append({
            "id": p.behaviour, "name": p.name, "place": place(p.file, p.line), "seconds": p.seconds, "by": "anyshape",
            "outcome": "program", "calls": "", "guards": "", "reasons": [], "excerpt": excerpt(p.file, p.line),
            "predicates": asked, "anchor": "", "code": (), "why": "; ".join(text for text, *_ in p.predicates[:3]),
        })  # fmt: skip
    return found


def anchor(compile_id: str) -> str:
    """The id of a compilation's element."""
    return "c-" + re.sub(r"\W", "-", compile_id)


def _code(report: Report) -> dict[str, list[tuple[str, str]]]:
    """Graphs and generated code by compile id, as far as they have room."""
    names = {"graph": "the graph that was captured", "output": "the code that was generated"}
    found: dict[str, list[tuple[str, str]]] = {}
    room = _MOST_CODE
    for made in report.code:
        if len(made.text) <= room:
            room -= len(made.text)
            found.setdefault(made.id, []).append((names.get(made.kind, made.kind), made.text))
    return found


def _embedded(value: Any) -> str:
    """JSON that can stand in a script element."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace("\u2028", "\\u2028")


def _charts() -> str:
    """The bundle as it lies on disk, in base64: the browser unpacks it."""
    return base64.b64encode(_CHARTS.read_bytes()).decode("ascii")
