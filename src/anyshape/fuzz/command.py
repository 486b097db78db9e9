"""What `anyshape fuzz` shows and writes.

Owns the progress line, the report and the JSON file; each way of fuzzing is in a module of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from anyshape._version import __version__
from anyshape.errors import NotCompilableError
from anyshape.fuzz import assumptions as breaking
from anyshape.fuzz import campaign as campaigns
from anyshape.fuzz import models, opinfos, scalar_oracle
from anyshape.fuzz.corpus import Corpus
from anyshape.fuzz.generate import generate
from anyshape.fuzz.oracle import Target


def campaign(settings: campaigns.Settings, address: str | None, *, json_file: str | None) -> int:
    """Run a campaign; the number of findings."""
    with _progress(sum(b - a for a, b in settings.chunks())) as show:
        totals = campaigns.run(settings, Corpus(address), lambda t: show(t.programs, t.line()))
    print(f"{settings.name}: {totals.line()}")
    if not totals.programs:
        raise NotCompilableError(
            "the campaign ran no program",
            where=f"--programs {settings.programs} --shard {settings.shard[0]}/{settings.shard[1]}",
            value=", ".join(f"{n} × {kind}" for kind, n in totals.kinds.items()) or "there was nothing to run",
            fix="anyshape fuzz --programs 1000",
            code="AS007",
        )
    for finding in totals.findings:
        print(f"  {finding['kind']}: {finding['text'][:160]}")
        print(f"    {finding['file'] or finding['source']}")
    for why, calls in totals.eagerly.most_common():
        print(f"  ran eagerly, {calls} calls, first in program {totals.first.get(why, '?')}: {why[:160]}")
    _write(json_file, {"campaign": settings.name, **totals.json()})
    return len(totals.findings)


def opinfo(target: Target, *, only: str | None, shard: tuple[int, int], json_file: str | None) -> int:
    """Run torch's own database; the number of samples that differ."""
    names = opinfos.names(only, shard)
    rows: list[opinfos.Row] = []
    with _progress(len(names)) as show:
        for name in names:
            rows += opinfos.sweep(name, target)
            show(len({r.op for r in rows}), opinfos.line(rows))
    print(opinfos.line(rows))
    failed = [r for r in rows if r.differences]
    for row in rows:
        for whose, found in ("", row.differences), ("statically too: ", row.torchs):
            for text in found[:1]:
                print(f"  {whose}{row.op} {row.dtype} {row.layout}{' out=' if row.out else ''}: {text[:200]}")
    _write(json_file, {"rows": [r.json() for r in rows], "line": opinfos.line(rows)})
    return len(failed)


def model(address: str, target: Target, *, calls: int, seed: int, json_file: str | None) -> int:
    """Fuzz a user's model; the number of calls that differ."""
    report = models.fuzz(address, target, calls=calls, seed=seed)
    print(report.text())
    _write(json_file, report.json())
    return len(report.differences)


def numbers(target: Target, *, programs: int, seed: int, shrink: float, json_file: str | None) -> int:
    """Fuzz Python numbers; how many programs differ of which static compilation is right."""
    findings: list[scalar_oracle.Finding] = []
    with _progress(programs) as show:
        for done, finding in enumerate(scalar_oracle.hunt(seed, 0, programs, target, seconds=shrink), 1):
            findings += [finding] if finding is not None else []
            show(done, f"{done} programs, {len(findings)} differ")
    print(f"{programs} programs, {len(findings)} differ")
    for found in findings:
        print(f"  program {found.number}: {found.text[:300]}\n{textwrap.indent(found.source, '    ')}")
        if found.static is not None:
            print(f"    statically too: {found.static[:200]}")
    rows = [{"number": f.number, "text": f.text, "source": f.source, "static": f.static} for f in findings]
    _write(json_file, {"programs": programs, "findings": rows})
    return sum(f.static is None for f in findings)


def assumptions(target: Target, *, programs: int, seed: int, through: str, json_file: str | None) -> int:
    """Break the assumptions of generated programs; how many were not checked."""
    checks: list[tuple[int, breaking.Check]] = []
    line = lambda: breaking.line([check for _, check in checks])
    with _progress(programs) as show:
        for number, case in enumerate(generate(seed, 0, programs)):
            checks += [(number, check) for check in breaking.check(case, target.backend, through)]
            show(number + 1, line())
    print(line())
    unchecked = [(number, check) for number, check in checks if not check.holds]
    for number, check in unchecked:
        broken = f"{check.assumption} at {dict(check.sizes)}"
        print(f"  program {number}: {broken}: {check.outcome} {check.text[:160]}")
    _write(json_file, {"checks": [{"program": number, **dataclasses.asdict(check)} for number, check in checks]})
    return len(unchecked)


def _write(path: str | None, content: dict[str, Any]) -> None:
    if path is not None:
        import torch

        with open(path, "w") as file:
            json.dump({"anyshape": __version__, "torch": torch.__version__, **content}, file, indent=1, default=str)


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[int, str], None]]:
    """A bar where there is a terminal and rich; else nothing."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield lambda done, text: None
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, text: None
        return
    columns = (BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=total)
        yield lambda done, text: progress.update(task, completed=done, description=text)
