"""Operations that often follow another, and often go wrong after it.

Owns the operations that are drawn half the time after one of a family, and those that take a Python number.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from anyshape.fuzz.operations import OPERATIONS

_SQUEEZES = "squeeze squeeze_dim add mul sub where_scalar compare expand_as broadcast_to cat_any stack sum reshape"
_WRITES = "unary_ mul_ iadd add_ fill_view setitem view_write reshape_write flatten_write contiguous_write out_unary"
FOLLOWERS: Final = MappingProxyType(
    {
        family: tuple(OPERATIONS[name] for name in names.split())
        for family, names in {
            "data": _SQUEEZES,
            "view": f"{_WRITES} view reshape flatten squeeze add contiguous matmul",
            "slicing": f"{_WRITES} {_SQUEEZES}",
            "joining": f"{_WRITES} add squeeze_dim",
            "reduction": _SQUEEZES,
            "inplace": "flatten transpose tail squeeze reshape view add sum",
        }.items()
    }
)
NUMBERS: Final = tuple(o for o in OPERATIONS.values() if any("n" in operand.kinds for operand in o.operands))
