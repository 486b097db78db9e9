"""SymInts that tensorify makes 0-dim tensors of: int64, and rounded to a float once.

Owns their dtype, and what is computed of them. `tensorify_python_scalars` (torch 2.11 to 2.15) computes `a * n` with
0-dim tensors, and makes that of `n` with `scalar_tensor`, whose dtype is float32 where none is given: ints beyond 2**24
lose digits. It is int64 here, as ints are to kernels; what is made a float of it is rounded once, as Python does. A
remainder is known there, and what is not known leaves the float a number.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.proxy import MetaProxy
from torch.utils._sympy.interp import handlers
from torch.utils._sympy.reference import TensorReferenceAnalysis

from anyshape._torch.repairs.registry import repair

_SCALAR_TENSOR = torch.ops.aten.scalar_tensor.default


@repair(
    "torch.fx.proxy:MetaProxy.__torch_function__",
    scope="compile",
    phase="AOT",
    broken="2.11-2.15",
    symptom="`n * 0.5` of an int beyond 2**24 is that of another int.",
    cause="fx/passes/_tensorify_python_scalars.py makes tensors of ints in torch's default dtype.",
    cure="They are int64.",
    goes="when that pass gives the dtype of an int",
)
def meta_call(stock: Any) -> Any:
    def call(cls: Any, method: Any, types: Any, args: Any = None, kwargs: Any = None) -> Any:
        if method is _SCALAR_TENSOR and not kwargs and args and _is_int(args[0]):
            kwargs = {"dtype": torch.int64}
        return stock(method, types, args, kwargs)

    return classmethod(call)


def _is_int(number: Any) -> bool:
    return isinstance(number, MetaProxy) and isinstance(number.node.meta.get("val"), torch.SymInt)


_NAMES = sorted({name for name in handlers().values() if not hasattr(TensorReferenceAnalysis, name)})


@repair(
    *(f"torch.utils._sympy.reference:TensorReferenceAnalysis.{name}" for name in _NAMES),
    scope="compile",
    phase="AOT",
    broken="2.11-2.15",
    symptom="`x * (n % 3 * 0.5)` is never compiled.",
    cause="utils/_sympy/reference.py:TensorReferenceAnalysis has no remainders, and says so with an AttributeError.",
    cure="A remainder is one; of what else is missing no tensor is made.",
    goes="when TensorReferenceAnalysis has all functions of handlers()",
    adds=True,
)
def function_of_tensors(stock: Any, name: str) -> Any:
    return staticmethod(torch.ops.aten.remainder.Tensor if name == "python_mod" else _unknown)


def _unknown(*args: Any) -> Any:
    raise NotImplementedError("no tensor is made of this")
