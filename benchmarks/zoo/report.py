"""What the zoo says of its results: a line a job, the table, and what the bars come to."""

from __future__ import annotations

import importlib.metadata
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.zoo import measure

Models = Mapping[str, Mapping[str, Any]]
WAYS = ("inference", "training", "export", "mixed", *measure.STOCK, *(f"cold, {mode}" for mode in measure.COLD_MODES))


def versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("torch", "transformers")}


def progress(jobs: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, Callable[[str], None]]]:
    """The jobs, with a bar that says how far they are."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as bar:
        task = bar.add_task("zoo", total=len(jobs))
        for name, way in jobs:
            bar.update(task, description=f"{name}: {way}")
            yield name, way, bar.console.print
            bar.advance(task)


def line(name: str, way: str, result: Mapping[str, Any]) -> str:
    return f"{name:18} {way:22} {verdict(result):32} {result.get('seconds', 0):6.1f} s"


def verdict(result: Mapping[str, Any] | None) -> str:
    """In a few words: programs, and whatever is not as it should be."""
    if not result:
        return ""
    if result.get("error") and "programs" not in result:
        return f"failed: {result['error'][:60]}"
    text = str(result["programs"])
    if result.get("with_unit") not in (None, result["programs"]):
        text += f" → {result['with_unit']}"
    if result["wrong"]:
        text += f", {len(result['wrong'])} wrong"
    if eager_runs(result):
        text += f", {eager_runs(result)} eager"
    if result.get("fullgraph") is False:
        text += ", breaks"
    if result.get("error"):
        text += ", failed"
    return text


def eager_runs(result: Mapping[str, Any]) -> int:
    """Calls that eager had a result for and no program; what raises in eager is left to it, and is none."""
    return sum(result.get("fallbacks", {}).values()) - int(result.get("raised", 0))


def own_branches(result: Mapping[str, Any] | None) -> list[str]:
    """What the model's own code asks about sizes, a line each; what every program asks alike is no reason."""
    programs = [p["predicates"] for p in (result or {}).get("behaviours", ())]
    texts = [{(where, text) for text, by, where in asked if by == "user"} for asked in programs]
    shared = set.intersection(*texts) if texts else set()
    lines = {where: text for asked in texts for where, text in sorted(asked - shared)}
    return [f"{_plain(text)} ({_short(where)})" for where, text in lines.items()] if len(programs) > 1 else []


def _plain(text: str) -> str:
    return re.sub(r"kwargs\['(\w+)'\]", r"\1", text)


def _short(where: str) -> str:
    return where.rpartition("site-packages/")[2]


def bars(models: Models) -> dict[str, str]:
    """What the zoo is for, counted."""
    runs = {n: m["inference"] for n, m in models.items() if "inference" in m}
    right = [n for n, r in runs.items() if not r["wrong"] and not r["error"]]
    one = [n for n in right if runs[n]["programs"] == 1 and runs[n]["fullgraph"] and not runs[n]["fallbacks"]]
    few = [n for n in right if runs[n]["programs"] <= 3 and not runs[n]["fallbacks"]]
    asked = [n for n in runs if runs[n].get("with_unit") is not None]
    unit = [n for n in asked if n in right and runs[n]["with_unit"] <= runs[n]["programs"] + 1]
    trained = {n: m["training"] for n, m in models.items() if "training" in m}
    good = [n for n, r in trained.items() if not (r["wrong"] or r["error"] or r["fallbacks"]) and r["programs"] == 1]
    found = {
        "models": str(len(runs)),
        "equal to eager at every size": f"{len(right)} of {len(runs)}",
        "one program for all sizes, fullgraph=True": f"{len(one)} of {len(runs)}",
        "three programs or fewer, nothing run eagerly": f"{len(few)} of {len(runs)}",
        "at most one program more at length 1": f"{len(unit)} of {len(asked)}",
    }
    if trained:
        found["trained with eager's gradients and one program"] = f"{len(good)} of {len(trained)}"
    exports = {n: m["export"] for n, m in models.items() if "export" in m}
    if exports:
        fit = [n for n, r in exports.items() if not (r["wrong"] or r["error"])]
        found["exported, right at every size of the sweep"] = f"{len(fit)} of {len(exports)}"
    found |= _mixed_bars({n: m for n, m in models.items() if "mixed" in m})
    for mode in measure.STOCK:
        stock = {n: m[mode] for n, m in models.items() if mode in m}
        single = [n for n, r in stock.items() if r.get("programs") == 1 and not r["wrong"]]
        if stock:
            found[f"stock, {mode}: right with one graph"] = f"{len(single)} of {len(stock)}"
    return found


def _mixed_bars(models: Models) -> dict[str, str]:
    if not models:
        return {}
    runs = {n: m["mixed"] for n, m in models.items()}
    right = [n for n, r in runs.items() if not r["error"] and not r["wrong"]]
    served = [n for n in right if not eager_runs(runs[n])]
    few = [n for n in served if runs[n]["programs"] <= 2]
    found = {
        "no two sizes alike: equal to eager": f"{len(right)} of {len(runs)}",
        "no two sizes alike: nothing run eagerly": f"{len(served)} of {len(runs)}",
        "no two sizes alike: at most two programs": f"{len(few)} of {len(runs)}",
    }
    ratios = [r for r in (cold_ratio(m) for m in models.values()) if r is not None]
    if ratios:
        middle, most = statistics.median(ratios), max(ratios)
        found["CPU time of the first five sizes, anyshape / best stock mode"] = f"median {middle:.2f}, most {most:.2f}"
    return found


def cold_ratio(model: Mapping[str, Any]) -> float | None:
    """CPU seconds of the first five sizes, by those of the best stock mode."""
    stock = [model[w]["cold"] for w in (f"cold, {mode}" for mode in measure.COLD_MODES) if model.get(w, {}).get("cold")]
    return model["mixed"]["cold"] / min(stock) if stock and model.get("mixed", {}).get("cold") else None


def markdown(results: Mapping[str, Any]) -> str:
    """The table for the documentation."""
    lines = []
    for key, run in results.items():
        lines += [f"## torch {key}, transformers {run['versions']['transformers']}", "", "| | |", "| --- | --- |"]
        lines += [f"| {what} | {count} |" for what, count in bars(run["models"]).items()]
        ways = [w for w in WAYS if any(w in m for m in run["models"].values())]
        titles = ["anyshape" if w == "inference" else f"stock, {w}" if w in measure.STOCK else w for w in ways]
        lines += ["", f"| model | {' | '.join(titles)} | the model's own branches |", "| --- " * (len(ways) + 2) + "|"]
        for name, model in run["models"].items():
            own = "<br>".join(
                f"`{text.replace('|', '/')}`" for text in own_branches(model.get("inference") or model.get("mixed"))[:4]
            )
            lines.append(f"| {name} | {' | '.join(verdict(model.get(way)) for way in ways)} | {own} |")
        lines.append("")
    return "\n".join(lines)


def table(results: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None)
    for key, run in results.items():
        shown = Table(title=f"programs over {len(measure.SIZES)} sizes (→ with length 1), torch {key}")
        ways = WAYS
        for column in ("model", *("anyshape" if w == "inference" else w for w in ways)):
            shown.add_column(column)
        for name, model in run["models"].items():
            shown.add_row(name, *(verdict(model.get(way)) for way in ways))
        console.print(shown)
        for what, count in bars(run["models"]).items():
            console.print(f"{what}: {count}")
