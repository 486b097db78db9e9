"""Plots of what the benchmarks measured: HTML pages that need nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def bars(path: str, series: Mapping[str, Mapping[str, float | None]], title: str) -> None:
    """A group of bars for each label, one bar for each series; 1 is what it is compared with."""
    figure = _figure(title)
    for name, values in series.items():
        figure.add_bar(x=list(values), y=list(values.values()), name=name)
    figure.add_hline(y=1, line_dash="dot")
    figure.write_html(path, include_plotlyjs=True)


def lines(
    path: str, series: Mapping[str, tuple[Sequence[float], Sequence[float]]], title: str, *, x: str, log: str = ""
) -> None:
    """A line for each series; `log` names the axes that are logarithmic."""
    figure = _figure(title)
    for name, (across, up) in series.items():
        figure.add_scatter(x=list(across), y=list(up), name=name)
    types = {f"{axis}axis_type": "log" for axis in log}
    figure.update_layout(xaxis_title=x, yaxis_rangemode="tozero", **types)
    figure.write_html(path, include_plotlyjs=True)


def _figure(title: str) -> Any:
    import plotly.graph_objects as go

    above = {"orientation": "h", "y": 1.12}
    return go.Figure(layout={"yaxis_title": title, "template": "plotly_white", "legend": above, "margin": {"t": 40}})
