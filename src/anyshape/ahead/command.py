"""`anyshape precompile` and `anyshape verify`.

Owns finding a callable by name, making the tensors of its calls from a declaration, and what is shown while it works.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import pathlib
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, cast

from anyshape import plain_text
from anyshape.artifact import inspecting
from anyshape.errors import ArtifactError


def precompile(
    name: str,
    *,
    shapes: Sequence[str],
    where: Sequence[str],
    specialize: Sequence[str],
    calls: Sequence[str],
    out: str,
    cover: bool,
    training: bool,
    weights: str,
    key_file: str | None,
) -> None:
    """Make an artifact of `module:name` and save it."""
    import torch

    from anyshape.ahead.precompile import precompile as make
    from anyshape.declaration import Declaration

    key = read_key(key_file)
    declared, dtypes = read_shapes(shapes)
    with _step(f"import {name}"):
        fn = find(name, training=training)
    declaration = Declaration.parse(shapes=declared, where=list(where) or None)
    made = [_tensors(declaration, dtypes, _sizes(text)) for text in (calls or [""])]
    with _step(f"compile {name} for {len(made)} calls" + (" and all that they do not cover" if cover else "")):
        with contextlib.nullcontext() if training else torch.no_grad():
            artifact = make(
                fn,
                (),
                made[0],
                calls=[((), m) for m in made[1:]],
                shapes=declared,
                where=list(where) or None,
                specialize=list(specialize) or None,
                cover=cover,
                weights=cast(Any, weights),  # checked there
            )
    with _step(f"save {out}"):
        artifact.save(out, key=key)
    for program in artifact.programs:
        print(f"  program for {program.behavior}")
    print(f"  key {artifact.key}")


def verify(url: str, *, key_file: str | None, anywhere: bool) -> None:
    """Check a file; whether it was made for this machine too, where there is a torch to ask."""
    here = None
    if not anywhere and importlib.util.find_spec("torch") is not None:
        from anyshape._torch.bundle import environment

        here = environment.here()
    for name, value in inspecting.verify(url, key=read_key(key_file), here=here).items():
        print(f"  {name:12} {plain_text.line(value)}")
    print("the file is whole")


def read_key(file: str | None) -> bytes | None:
    """The secret in a file; surrounding white space is not part of it."""
    if file is None:
        return None
    try:
        return pathlib.Path(file).read_bytes().strip()
    except OSError as error:
        fix = f"head -c 32 /dev/urandom | base64 > {file}"
        raise ArtifactError("the key cannot be read", where=file, value=str(error), fix=fix, code="AS053") from error


def find(name: str, *, training: bool) -> Any:
    """A function, a module, or a class of modules, which is then made without arguments."""
    import torch

    module, _, path = name.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for part in path.split(".") if path else ():
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ArtifactError(
            "there is no such callable",
            where=name,
            value=str(error),
            fix="anyshape precompile package.module:name ...",
            code="AS056",
        ) from error
    finally:
        sys.path.remove(os.getcwd())
    if isinstance(found, type) and issubclass(found, torch.nn.Module):
        found = found()
    return found.train(training) if isinstance(found, torch.nn.Module) else found


def read_shapes(given: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """`x=batch seq 512` and `ids=batch seq:int64` as shapes and dtypes by argument."""
    shapes, dtypes = {}, {}
    for text in given:
        name, equals, shape = text.partition("=")
        shape, _, dtype = shape.partition(":")
        if not equals or not name.strip():
            fix = '--shape "x=batch seq 512" --shape "ids=batch seq:int64"'
            raise ArtifactError("a shape is an argument and its dims", value=text, fix=fix, code="AS007")
        shapes[name.strip()] = shape.strip()
        dtypes[name.strip()] = dtype.strip() or "float32"
    return shapes, dtypes


def _sizes(text: str) -> dict[str, tuple[int, ...]]:
    """`batch=1 seq=64`."""
    try:
        pairs = [pair.partition("=") for pair in text.replace(",", " ").split()]
        return {name: (int(size),) for name, _, size in pairs}
    except ValueError as error:
        fix = '--call "batch=1 seq=64"'
        raise ArtifactError("a call is names and sizes", value=text, fix=fix, code="AS007") from error


def _tensors(declaration: Any, dtypes: dict[str, str], sizes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Tensors of these sizes; what is not given, the solver chooses."""
    import dataclasses

    import torch

    from anyshape.declaration import evaluate, solver

    values = solver.solve_hints(dataclasses.replace(declaration, hints=sizes))
    made = {}
    for shape in declaration.shapes:
        dims = [int(evaluate(d.expr, values)) if d.expr is not None else 2 for d in shape.dims]
        dtype = getattr(torch, dtypes[shape.path.text], None)
        if not isinstance(dtype, torch.dtype):
            fix = f'--shape "{shape.path.text}={shape.text}:int64"'
            raise ArtifactError("torch has no such dtype", value=dtypes[shape.path.text], fix=fix, code="AS007")
        made[shape.path.text] = torch.zeros(dims, dtype=dtype)
    return made


@contextlib.contextmanager
def _step(text: str) -> Iterator[None]:
    """A line for what is under way, and how long it took."""
    print(f"{text} ...", end=" ", flush=True)
    began = time.perf_counter()
    yield
    print(f"{time.perf_counter() - began:.1f} s", flush=True)
