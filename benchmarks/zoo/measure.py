"""One model, one way of compiling it: what a process of the zoo does.

usage: measure.py NAME WAY [BACKEND]      WAY: inference, training, export, or a stock mode; prints one line of JSON
"""

from __future__ import annotations

import copy
import json
import sys
import time
import traceback
import warnings
from typing import Any

import torch

import anyshape
from anyshape._torch.comparison import stock
from anyshape._torch.runtime import trees
from benchmarks.zoo import later, libraries, mixed, newest, pictures, rows, sounds, text

PARTS = (text, pictures, sounds, later, newest, libraries)
ROWS: dict[str, rows.Row] = {row.name: row for part in PARTS for row in part.ROWS}
SIZES = [(2, 16), (3, 24), (1, 16), (5, 7), (4, 32)]
UNIT = (1, 1)
STOCK = stock.ALL_MODES
COLD_MODES = stock.MODES[:2]  # those that are eager's for every model
BATCHES = [(2, 16), (3, 16), (1, 16), (5, 16), (4, 16), (7, 16)]


def tensors(output: Any) -> list[torch.Tensor]:
    return [leaf for leaf in trees.leaves(output) if isinstance(leaf, torch.Tensor)]


def seeded(call: Any, *args: Any, **kwargs: Any) -> list[torch.Tensor]:
    """What a call gives; some models draw random numbers."""
    torch.manual_seed(0)
    return tensors(call(*args, **kwargs))


def difference(got: list[torch.Tensor], want: list[torch.Tensor]) -> str:
    """Nothing, or the first thing that is not eager's."""
    if len(got) != len(want) or not want:
        return f"{len(got)} tensors, not {len(want)}"
    for index, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        try:
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4, equal_nan=True)
        except AssertionError as error:
            return f"tensor {index}: {' '.join(str(error).split())[:200]}"
    return ""


def inference(row: rows.Row, backend: str) -> dict[str, Any]:
    """The sweep with `fullgraph=True`; without, where the model itself does not allow it."""
    result = _sweep(row, backend, fullgraph=True)
    if result["error"]:
        torch._dynamo.reset()
        result = {**_sweep(row, backend, fullgraph=False), "refused": result["error"], "trace": result["trace"]}
    return result


def _sweep(row: rows.Row, backend: str, *, fullgraph: bool) -> dict[str, Any]:
    model = row.build().eval()
    f = anyshape.compile(model, backend=backend, fullgraph=fullgraph)
    result: dict[str, Any] = {"fullgraph": fullgraph, "wrong": [], "error": "", "trace": ""}
    began = time.perf_counter()
    try:
        with torch.no_grad():
            for size in SIZES + ([UNIT] if row.unit else []):
                if size == UNIT:
                    result["programs"] = len(f.programs)
                want, got = (seeded(call, **row.inputs(*size)) for call in (model, f))
                wrong = difference(got, want)
                if wrong:
                    result["wrong"].append([size, wrong])
        result.setdefault("programs", len(f.programs))
    except Exception as error:
        result["error"] = f"at {size}: {type(error).__name__}: {' '.join(str(error).split())[:400]}"
        result["trace"] = traceback.format_exc()[-3000:]
    result["with_unit"] = len(f.programs)
    result["fallbacks"] = f.fallbacks
    result["seconds"] = round(time.perf_counter() - began, 2)
    result["behaviours"] = [_behaviour(p) for p in f.programs]
    return result


def _behaviour(program: Any) -> dict[str, Any]:
    asked = [[p.text, p.asked_by, f"{p.file}:{p.line}"] for p in program.predicates]
    return {"name": program.name, "calls": program.calls, "predicates": asked, "breaks": list(program.graph_breaks)}


def training(row: rows.Row, backend: str) -> dict[str, Any]:
    """Forward, backward and a step of the optimizer, side by side with eager's, from the same weights and seeds."""
    models = [row.build().train()]
    models.append(copy.deepcopy(models[0]))
    f = anyshape.compile(models[0], backend=backend)
    result: dict[str, Any] = {"wrong": [], "error": "", "trace": ""}
    optimisers = [torch.optim.SGD(m.parameters(), lr=1e-3) for m in models]
    began = time.perf_counter()
    try:
        for size in BATCHES:
            grads = []
            for call, model, optimiser in zip((f, models[1]), models, optimisers, strict=True):
                torch.manual_seed(0)
                optimiser.zero_grad()
                outputs = [t for t in tensors(call(**row.inputs(*size))) if t.requires_grad]
                sum(t.float().square().mean() for t in outputs).backward()
                grads.append([p.grad for p in model.parameters() if p.grad is not None])
                optimiser.step()
            wrong = difference(*grads)
            if wrong:
                result["wrong"].append([size, wrong])
    except Exception as error:
        result["error"] = f"at {size}: {type(error).__name__}: {' '.join(str(error).split())[:400]}"
        result["trace"] = traceback.format_exc()[-3000:]
    result |= {"programs": len(f.programs), "fallbacks": f.fallbacks, "seconds": round(time.perf_counter() - began, 2)}
    return result | {"behaviours": [_behaviour(p) for p in f.programs]}


def beside(row: rows.Row, mode: str, backend: str) -> dict[str, Any]:
    """The sweep with stock `torch.compile`."""
    model = row.build().eval()
    names = list(row.inputs(*SIZES[0]))
    shapes = [{n: t.shape for n, t in row.inputs(*size).items()} for size in SIZES]
    free = [[d for d in range(len(shapes[0][n])) if len({s[n][d] for s in shapes}) > 1] for n in names]

    def call(*given: torch.Tensor) -> Any:
        return model(**dict(zip(names, given, strict=True)))

    result: dict[str, Any] = {"wrong": [], "error": ""}
    began = time.perf_counter()
    with stock.measuring(), torch.no_grad():
        f = stock.compile(call, mode=mode, backend=backend, free=free)
        for size in SIZES + ([UNIT] if row.unit else []):
            if size == UNIT:
                result["programs"] = f.programs
            want = seeded(model, **row.inputs(*size))
            try:
                wrong = difference(seeded(f, *row.inputs(*size).values()), want)
            except Exception as error:
                wrong = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
                result["error"] = result["error"] or wrong
            if wrong:
                result["wrong"].append([size, wrong])
    result.setdefault("programs", f.programs)
    seconds = round(time.perf_counter() - began, 2)
    return result | {"with_unit": f.programs, "continuations": f.continuations, "seconds": seconds}


class First(torch.nn.Module):
    """A model with its inputs one by one, and a tensor for its result."""

    def __init__(self, model: torch.nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, first: torch.Tensor, second: torch.Tensor | None = None) -> Any:
        given = {n: t for n, t in zip(self.names, (first, second), strict=False) if t is not None}
        return self.model(**given)[0]


def export(row: rows.Row, backend: str) -> dict[str, Any]:
    """`anyshape.export` for every batch, and lengths from 2 on: one program, or one for each branch of the model's."""
    names = list(row.inputs(*SIZES[0]))
    model = First(row.build().eval(), names)
    calls = [tuple(row.inputs(*size).values()) for size in SIZES]
    shapes, known = {}, {tuple(b for b, _ in SIZES): "batch"}
    for i, place in enumerate(("first", "second")[: len(names)]):
        seen = [tuple(call[i].shape[d] for call in calls) for d in range(calls[0][i].dim())]
        for sizes in seen:
            known.setdefault(sizes, f"n{len(known)}")
        shapes[place] = " ".join(known[s] if len(set(s)) > 1 else str(s[0]) for s in seen)
    where = [
        f"{n} >= {1 if n == 'batch' else 2}" for n in known.values() if any(n in t.split() for t in shapes.values())
    ]
    result: dict[str, Any] = {"wrong": [], "error": "", "programs": 1}
    began = time.perf_counter()
    with torch.no_grad():
        try:
            try:
                program = anyshape.export(model, calls[0], shapes=shapes, where=where).module()
            except anyshape.Error as error:
                result["refused"] = str(error)[:400]
                program = anyshape.export(model, calls[0], shapes=shapes, where=where, behaviors="all")
                result["programs"] = len(program.behaviors)
            for size, call in zip(SIZES, calls, strict=True):
                wrong = difference(seeded(program, *call), seeded(model, *call))
                if wrong:
                    result["wrong"].append([size, wrong])
        except Exception as error:
            result["error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
            result["trace"] = traceback.format_exc()[-3000:]
    return result | {"seconds": round(time.perf_counter() - began, 2)}


def measure(name: str, way: str, backend: str = "aot_eager") -> dict[str, Any]:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    row = ROWS[name]
    if way == "inference":
        return inference(row, backend)
    if way == "training":
        return training(row, backend)
    if way == "mixed":
        return mixed.mixed(row, backend)
    if way.startswith("cold, "):
        return mixed.cold(row, way.removeprefix("cold, "), backend)
    if way == "export":
        return export(row, backend)
    return beside(row, way, backend)


def send(pipe: Any, *words: str) -> None:
    """What a process of the zoo does."""
    import transformers

    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    pipe.send(measure(*words))


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:])))
