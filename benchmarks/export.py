"""Exporting for every size: anyshape beside stock torch.export (Dim.AUTO, and mark_unbacked), in one run.

usage: export.py [--json FILE] [--aoti] [--models] [NAME ...]

For each function: at how many of the sizes that eager has a result for the exported program gives it. A call that
raises counts as refused, another result as wrong. `--aoti` runs the same through AOTInductor on the CPU; `--models`
adds the models of the installed transformers, with a program for each behavior where anyshape exports them.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.decorators import mark_unbacked
from torch.utils._pytree import tree_leaves, tree_map

import anyshape

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests" / "e2e"))
import export_cases as cases

Case = tuple[Callable[[], Any], Callable[[int, int], tuple[Any, ...]], list[tuple[int, int]], Any]


def functions() -> dict[str, Case]:
    return {n: (make, inputs, cases.SIZES, cases.SHAPES.get(n)) for n, (make, inputs) in cases.CASES.items()}


def models() -> dict[str, Case]:
    import test_export_models as m

    def case(name: str) -> Case:
        shapes = {"x": "batch 3 32 32"} if name == "vit" else {"x": "batch length"}
        make = lambda: m.First(m.MODELS[name]().eval())
        return make, lambda b, n: (m.inputs(name, b, n),), m.SIZES, shapes

    return {name: case(name) for name in m.MODELS}


def as_module(model: Any) -> torch.nn.Module:
    if isinstance(model, torch.nn.Module):
        return model
    module = torch.nn.Module()
    module.forward = lambda *args: model(*args)
    return module


def stock_auto(model: Any, args: tuple[Any, ...], shapes: Any) -> Any:
    free = tuple(tree_map(lambda x: dict.fromkeys(range(x.dim()), torch.export.Dim.AUTO), a) for a in args)
    module = as_module(model)
    by_name = {"args": free} if module is not model else free
    return torch.export.export(module, args, dynamic_shapes=by_name)


def stock_unbacked(model: Any, args: tuple[Any, ...], shapes: Any) -> Any:
    for leaf in tree_leaves(args):
        for dim in range(leaf.dim()):
            mark_unbacked(leaf, dim)
    return torch.export.export(as_module(model), args, strict=True)


def ours(model: Any, args: tuple[Any, ...], shapes: Any) -> Any:
    try:
        return anyshape.export(model, args, shapes=shapes)
    except anyshape.ExportError:
        return anyshape.export(model, args, shapes=shapes, behaviors="all")


WAYS = {"Dim.AUTO": stock_auto, "mark_unbacked": stock_unbacked, "anyshape": ours}


def runnable(exported: Any, *, aoti: bool) -> Callable[..., Any]:
    if not aoti:
        return exported if isinstance(exported, anyshape.ExportedBehaviors) else exported.module()

    def compiled(program: Any) -> Any:
        with tempfile.NamedTemporaryFile(suffix=".pt2", delete=False) as file:
            return torch._inductor.aoti_load_package(
                torch._inductor.aoti_compile_and_package(program, package_path=file.name)
            )

    if not isinstance(exported, anyshape.ExportedBehaviors):
        return compiled(exported)
    made = {id(b): compiled(b.program) for b in exported.behaviors}
    return lambda *args: made[id(exported.behavior_for(*args))](*args)


def result(call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    try:
        return tree_leaves(call(*args))
    except Exception as error:
        return error


def measure(case: Case, way: Callable[..., Any], *, aoti: bool) -> dict[str, Any]:
    make, inputs, sizes, shapes = case
    torch.manual_seed(0)
    model = make()
    began = time.perf_counter()
    try:
        exported = way(model, inputs(*sizes[0]), shapes)
        seconds = time.perf_counter() - began
        call = runnable(exported, aoti=aoti)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"}
    right = refused = wrong = 0
    for size in sizes:
        want = result(model, inputs(*size))
        if isinstance(want, Exception):
            continue
        got = result(call, inputs(*size))
        if isinstance(got, Exception):
            refused += 1
            continue
        try:
            for mine, theirs in zip(got, want, strict=True):
                torch.testing.assert_close(mine, theirs, atol=1e-3, rtol=1e-3, equal_nan=True)
            right += 1
        except (AssertionError, ValueError):
            wrong += 1
    programs = len(exported.behaviors) if isinstance(exported, anyshape.ExportedBehaviors) else 1
    return {"right": right, "refused": refused, "wrong": wrong, "programs": programs, "seconds": round(seconds, 2)}


def shown(found: dict[str, Any]) -> str:
    if "error" in found:
        return found["error"].split(":")[0][:22]
    total = found["right"] + found["refused"] + found["wrong"]
    text = f"{found['right']}/{total}"
    text += f" wrong {found['wrong']}" if found["wrong"] else ""
    return text + (f" ({found['programs']} programs)" if found["programs"] > 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--aoti", action="store_true")
    parser.add_argument("--models", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found: dict[str, dict[str, Any]] = {}
    chosen = {**functions(), **(models() if options.models else {})}
    print(f"torch {torch.__version__}{', AOTInductor' if options.aoti else ''}: sizes at which the program is right")
    print(f"{'':18}" + "".join(f"{way:26}" for way in WAYS))
    with torch.no_grad():
        for name in options.names or chosen:
            found[name] = {way: measure(chosen[name], f, aoti=options.aoti) for way, f in WAYS.items()}
            print(f"{name:18}" + "".join(f"{shown(r):26}" for r in found[name].values()), flush=True)
            if options.json is not None:
                report = {"torch": torch.__version__, "aoti": options.aoti, "functions": found}
                options.json.write_text(json.dumps(report, indent=1))
    for way in WAYS:
        rows = [r[way] for r in found.values()]
        whole = sum("right" in r and not r["refused"] and not r["wrong"] for r in rows)
        wrong = sum(r.get("wrong", 0) for r in rows)
        failed = sum("error" in r for r in rows)
        print(f"{way}: {whole} of {len(rows)} right at every size, {wrong} wrong results, {failed} not exported")


if __name__ == "__main__":
    main()
