"""The zoo as one page that works from disk: the template is jinja2's, the chart plotly's."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

from benchmarks.zoo import measure, report

_HERE = pathlib.Path(__file__).parent


def render(results: Mapping[str, Any]) -> str:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals.update(verdict=report.verdict, own_branches=report.own_branches, bars=report.bars)
    charts = {key: _chart(run["models"], first=not index) for index, (key, run) in enumerate(results.items())}
    kinds = {name: row.kind for name, row in measure.ROWS.items()}
    return environment.get_template("page.html").render(
        results=results, charts=charts, stock=measure.STOCK, kinds=kinds, sizes=measure.SIZES
    )


def _chart(models: report.Models, *, first: bool) -> str:
    """How many programs each model takes, a mark for each way of compiling it."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for way in ("inference", *measure.STOCK):
        shown = [(n, m[way]["programs"]) for n, m in models.items() if "programs" in m.get(way, {})]
        if shown:
            names, counts = zip(*shown, strict=True)
            label = "anyshape" if way == "inference" else f"stock, {way}"
            figure.add_scatter(x=names, y=counts, mode="markers", name=label)
    figure.update_yaxes(title="programs", type="log")
    figure.update_layout(height=520, margin={"t": 30}, legend={"orientation": "h", "y": 1.1})
    return str(figure.to_html(full_html=False, include_plotlyjs=first))
