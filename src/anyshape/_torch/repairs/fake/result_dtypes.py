"""In-place type promotion that eager refuses (`counts *= 1.5` of integers), checked in fake runs.

Owns one repair (torch 2.11 to 2.15): eager raises, and the fake kernels of `mul_`, `add_`, `addcmul_` and others do not
look, so that compiled code rounds. Eager's own kernel is asked here, with tensors that have no elements.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from anyshape._torch.fake_runs import concrete
from anyshape._torch.graphs import memory

_REFUSAL = "can't be cast to the desired output type"


def refuse(call: Any, args: Any, kwargs: Any) -> None:
    """Raise what eager raises for the dtypes that a call is given."""
    if not memory.computes(call) or _holds_all(concrete.leaves(args[:1]), concrete.leaves((args, kwargs))):
        return
    with unset_fake_temporarily(), torch.no_grad():
        try:
            concrete.call(call, *concrete.map_leaves(_without_elements, (args, kwargs)))
        except RuntimeError as error:
            if _REFUSAL in str(error):
                raise
        except Exception:  # what else may be wrong with a call is told by its fake kernel
            return


def _holds_all(written: list[Any], given: list[Any]) -> bool:
    """Whether no result can be of a kind that these do not hold: floating numbers hold all but complex ones."""
    kinds = [t.dtype for t in written if isinstance(t, torch.Tensor)]
    if any(not kind.is_floating_point and not kind.is_complex for kind in kinds):
        return False
    return all(kind.is_complex for kind in kinds) or not any(map(_is_complex, given))


def _is_complex(value: Any) -> bool:
    return isinstance(value, complex) or (isinstance(value, torch.Tensor) and value.is_complex())


def _without_elements(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.zeros([0] * value.dim(), dtype=value.dtype, device="cpu")
    if isinstance(value, torch.SymInt):
        return 1
    return 1.0 if isinstance(value, torch.SymFloat) else value
