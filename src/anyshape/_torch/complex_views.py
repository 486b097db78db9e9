"""Views of complex tensors.

Owns one repair: Inductor makes every view a reshape (2.11 to 2.15), and calls those of complex tensors as they are. A
reshape of symbolic strides that does not know whether it is a view is promised to be a copy, which then has other
strides than promised. They stay views.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import torch._inductor.compile_fx as compile_fx

_NAME = "view_to_reshape"
_VIEW = torch.ops.aten.view.default


def _is_complex(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_complex()


@contextlib.contextmanager
def patches() -> Iterator[None]:
    stock = getattr(compile_fx, _NAME, None)
    if stock is None:
        yield
        return

    def view_to_reshape(module: Any) -> None:
        kept = [n for n in module.graph.find_nodes(op="call_function", target=_VIEW) if _is_complex(n.meta.get("val"))]
        stock(module)
        for node in kept:
            node.target = _VIEW

    with mock.patch.object(compile_fx, _NAME, view_to_reshape):
        yield
