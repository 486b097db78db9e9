"""The backend that other programs know by its name: `torch.compile(model, backend="anyshape")`.

Owns what stands behind the entry point `anyshape` of the group `torch_dynamo_backends`: what an argument of
`torch.compile` is in `anyshape.compile`. Libraries that keep a list of names of their own are `library_names`'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyshape import compiler
from anyshape._torch.runtime import named_backends
from anyshape.errors import NotCompilableError


def anyshape(graph: Any, inputs: Any, **options: Any) -> Any:
    """Never called by `torch.compile`: a graph that Dynamo has captured for stock assumes too much already."""
    raise NotCompilableError(
        "anyshape captures calls itself, and was given a graph that is captured already",
        value=type(graph).__name__,
        fix='f = torch.compile(fn, backend="anyshape")',
        code="AS007",
    )


# Of anyshape.compile and not of torch.compile: they come among the options. The rest is for Inductor.
_OWN_OPTIONS = (
    "backend",
    "shapes",
    "where",
    "layout",
    "hints",
    "specialize",
    "semantics",
    "on_new_behavior",
    "on_branch",
    "frozen",
    "background",
    "distributed",
    "artifacts",
)


def compile_by_name(model: Callable[..., Any], **given: Any) -> Any:
    """What `torch.compile(model, backend="anyshape", ...)` gives: `anyshape.compile` with the same arguments."""
    options = dict(given.pop("options", None) or {})
    own = {name: options.pop(name) for name in _OWN_OPTIONS if name in options}
    shapes = given.pop("shapes_spec", None)
    if shapes is not None:
        own.setdefault("shapes", shapes)
    guard_filter = given.pop("guard_filter_fn", None)
    if guard_filter is not None:
        options["guard_filter_fn"] = guard_filter
    return compiler.compile(model, options=options or None, **given, **own)


named_backends.hand_over(anyshape, compile_by_name)
