"""Views of complex tensors stay views in lowering.

Owns one repair: Inductor makes every view a reshape (2.11 to 2.15), and calls those of complex tensors as they are. A
reshape of symbolic strides that does not know whether it is a view is promised to be a copy, which then has other
strides than promised. They stay views.
"""

from __future__ import annotations

from typing import Any

import torch

from anyshape._torch.repairs.registry import repair

_VIEW = torch.ops.aten.view.default


def _is_complex(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_complex()


@repair(
    "torch._inductor.compile_fx:view_to_reshape",
    scope="compile",
    phase="lowering",
    broken="2.11-2.15",
    symptom="A view of a complex tensor with symbolic strides has other strides than were promised.",
    cause="compile_fx.py:view_to_reshape makes every view a reshape; one that cannot tell whether it is a view copies.",
    cure="Views of complex tensors stay views.",
    goes="when Inductor reshapes complex tensors with the strides that were traced",
    absent="skip",
)
def view_to_reshape(stock: Any) -> Any:
    def kept(module: Any) -> None:
        views = [n for n in module.graph.find_nodes(op="call_function", target=_VIEW) if _is_complex(n.meta.get("val"))]
        stock(module)
        for node in views:
            node.target = _VIEW

    return kept
