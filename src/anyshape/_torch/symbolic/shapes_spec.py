"""torch's ShapesSpec, where torch has it, as a declaration.

Owns the translation: a variable is a name, its bounds and the assumptions are clauses, its hint is a hint.
"""

from __future__ import annotations

import re
from typing import Any

import sympy

try:
    from torch.fx.experimental import dynamic_spec
except ImportError:  # torch 2.11 has none
    dynamic_spec = None  # type: ignore[assignment]

from anyshape.assumptions.wording import relation_text
from anyshape.errors import DeclarationError


def words(shapes: Any) -> dict[str, Any] | None:
    """`shapes`, `where` and `hints` for a ShapesSpec or ParamsSpec of torch's; None for anything else."""
    if dynamic_spec is None or not isinstance(shapes, (dynamic_spec.ShapesSpec, dynamic_spec.ParamsSpec)):
        return None
    params = shapes._params if isinstance(shapes, dynamic_spec.ShapesSpec) else shapes
    found: dict[str, Any] = {"shapes": {}, "where": [], "hints": {}}
    named = [] if params is None else list(params._named_args.items())
    if params is not None and params._varargs:
        named += [(f"args[{i}]", v) for i, v in enumerate(params._varargs)]
    if params is not None and params._varkw:
        named += [(f"kwargs['{k}']", v) for k, v in params._varkw.items()]
    for path, spec in named:
        _collect(path, spec, found)
    for assumption in getattr(shapes, "_assumptions", ()):
        found["where"].append(_text(assumption.node.expr))
    return found


def _collect(path: str, spec: Any, found: dict[str, Any]) -> None:
    assert dynamic_spec is not None
    if spec is None or isinstance(spec, int):
        return  # an int argument, or nothing said
    if isinstance(spec, dynamic_spec.TensorSpec):
        dims = [_dim(spec[i], found) for i in range(len(spec))]
        found["shapes"][path] = " ".join(dims) or "()"
        return
    fields, entries = getattr(spec, "_fields", None), getattr(spec, "_entries", None)
    if isinstance(fields, dict):
        for name, value in fields.items():
            _collect(f"{path}.{name}", value, found)
        return
    if isinstance(entries, (dict, list)):
        for key, value in entries.items() if isinstance(entries, dict) else enumerate(entries):
            _collect(f"{path}[{key!r}]", value, found)
        return
    what = f"{type(spec).__name__} in a ShapesSpec says nothing that a declaration can say"
    raise DeclarationError(what, where=f"shapes: {path}", fix=f'shapes={{"{path}": "batch _"}}')


def _dim(dim: Any, found: dict[str, Any]) -> str:
    if dim is None:
        return "_"
    if isinstance(dim, int):
        return str(dim)
    if hasattr(dim, "sympy_sym"):  # a variable, not an expression of some
        name = _name(dim.sympy_sym)
        low, high = getattr(dim, "min", None), getattr(dim, "max", None)
        bounds = [f"{name} >= {low}"] * bool(low) + [f"{name} <= {high}"] * (high is not None)
        found["where"] += [b for b in bounds if b not in found["where"]]
        hint = getattr(dim, "optimization_hint", None)
        if hint is not None:
            found["hints"][name] = hint
        return name
    return _text(dim.node.expr).replace(" ", "")


def _name(symbol: Any) -> str:
    return re.sub(r"\W.*", "", str(symbol))


def _text(expr: sympy.Basic) -> str:
    names = {s: sympy.Symbol(_name(s), integer=True) for s in expr.free_symbols}
    return relation_text(expr.xreplace(names))
