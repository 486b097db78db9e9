"""A model called with no two sizes alike, with empty batches and lengths of 1 among them.

Owns the way `mixed` of a row, and the CPU time of its first sizes with anyshape and with a stock mode. A call that
raises has to raise what eager does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

import anyshape
from anyshape._torch.comparison import stock
from anyshape._torch.runtime import trees
from benchmarks.zoo import rows

COLD = [(2, 16), (3, 24), (1, 16), (5, 7), (4, 32)]
SIZES = [*COLD, (1, 1), (0, 16), (6, 12), (2, 25), (7, 1), (8, 40)]


def outcome(call: Callable[..., Any], given: rows.Inputs) -> list[torch.Tensor] | Exception:
    torch.manual_seed(0)
    try:
        return [leaf for leaf in trees.leaves(call(**given)) if isinstance(leaf, torch.Tensor)]
    except Exception as error:
        return error


def difference(got: list[torch.Tensor] | Exception, want: list[torch.Tensor] | Exception) -> str:
    """Nothing, or the first thing that is not eager's."""
    if isinstance(got, Exception) or isinstance(want, Exception):
        return "" if type(got) is type(want) else f"{got!r:.200}, not {want!r:.200}"
    if len(got) != len(want):
        return f"{len(got)} tensors, not {len(want)}"
    for index, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        try:
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4, equal_nan=True, check_stride=True)
        except AssertionError as error:
            return f"tensor {index}: {' '.join(str(error).split())[:200]}"
    return ""


def mixed(row: rows.Row, backend: str) -> dict[str, Any]:
    model = row.build().eval()
    f = anyshape.compile(model, backend=backend)
    result: dict[str, Any] = {"wrong": [], "error": "", "took": []}
    raised = 0
    with torch.no_grad():
        for size in SIZES:
            want = outcome(model, row.inputs(*size))
            given, before = row.inputs(*size), time.process_time()
            got = outcome(f, given)
            result["took"].append(round(time.process_time() - before, 2))
            raised += isinstance(want, Exception)
            wrong = difference(got, want)
            if wrong:
                result["wrong"].append([size, wrong])
    # What eager raises is eager's own: such a call is served by it, and counted with the fallbacks.
    result |= {"programs": len(f.programs), "raised": raised, "fallbacks": dict(f.fallbacks)}
    result["breaks"] = sorted({line for p in f.programs for line in p.graph_breaks})
    asked = [[[p.text, p.asked_by, f"{p.file}:{p.line}"] for p in program.predicates] for program in f.programs]
    names = [program.name for program in f.programs]
    result["behaviours"] = [
        {"name": n, "calls": p.calls, "predicates": a, "breaks": list(p.graph_breaks)}
        for n, p, a in zip(names, f.programs, asked, strict=True)
    ]
    return result | {"cold": round(sum(result["took"][: len(COLD)]), 2), "seconds": round(sum(result["took"]), 2)}


def cold(row: rows.Row, mode: str, backend: str) -> dict[str, Any]:
    """The first sizes with a stock mode."""
    model = row.build().eval()
    names = list(row.inputs(*COLD[0]))
    shapes = [{n: t.shape for n, t in row.inputs(*size).items()} for size in COLD]
    free = [[d for d in range(len(shapes[0][n])) if len({s[n][d] for s in shapes}) > 1] for n in names]

    def call(*given: torch.Tensor) -> Any:
        return model(**dict(zip(names, given, strict=True)))

    result: dict[str, Any] = {"wrong": [], "error": "", "took": []}
    with stock.measuring(), torch.no_grad():
        f = stock.compile(call, mode=mode, backend=backend, free=free)
        for size in COLD:
            want = outcome(model, row.inputs(*size))
            given, before = row.inputs(*size), time.process_time()
            got = outcome(lambda **words: f(*words.values()), given)
            result["took"].append(round(time.process_time() - before, 2))
            wrong = difference(got, want)
            if wrong:
                result["wrong"].append([size, wrong])
    return result | {"programs": f.programs, "cold": round(sum(result["took"]), 2), "seconds": sum(result["took"])}
