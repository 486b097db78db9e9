"""`torch.compile(backend="anyshape")` handed over whole, before Dynamo has captured anything.

A backend of torch's is given graphs that Dynamo has captured, and by then what they assume of sizes is settled. So the
whole call of `torch.compile` is handed over: `torch.compile` looks the backend up before it asks Dynamo for a compiler
of frames (torch/__init__.py, `compile`), and from the first time that the name is looked up that question is answered
here for this backend. Every other backend goes on to torch. It stays for the process, as the name does: torch looks a
name up once. It can go when a backend may convert frames itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from anyshape._torch.repairs.registry import repair


def hand_over(backend: Callable[..., Any], compile_: Callable[..., Any]) -> None:
    """From here on `torch.compile` with this backend calls `compile_(model, **arguments)`."""
    torch._dynamo.optimize = optimize(torch._dynamo.optimize, backend=backend, compile_=compile_)


@repair(
    "torch._dynamo:optimize",
    scope="named backend",
    phase="capture",
    kind="meaning",
    symptom="A backend is given graphs in which what they assume of sizes is settled.",
    cause="torch/__init__.py:compile asks Dynamo for a compiler of frames whatever the backend is.",
    cure="The whole call is handed over where that backend is named; from the first time that the name is looked up.",
    goes="when a backend may convert frames itself",
    by_itself=True,
)
def optimize(stock: Any, *, backend: Callable[..., Any], compile_: Callable[..., Any]) -> Any:
    @functools.wraps(stock)
    def handed_over(*args: Any, **kwargs: Any) -> Any:
        given = args[0] if args else kwargs.get("backend")
        if getattr(given, "compiler_fn", None) is not backend:
            return stock(*args, **kwargs)
        return functools.partial(compile_, **_arguments(given, kwargs))

    return handed_over


def _arguments(given: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of torch.compile, out of what it makes of them."""
    found = {"dynamic": given.dynamic, "mode": given.kwargs.get("mode"), "options": given.kwargs.get("options")}
    found |= {"fullgraph": kwargs.get("nopython"), "guard_filter_fn": kwargs.get("guard_filter_fn")}
    found |= {name: kwargs.get(name) for name in ("disable", "recompile_limit", "isolate_recompiles", "shapes_spec")}
    return {name: value for name, value in found.items() if value is not None}
