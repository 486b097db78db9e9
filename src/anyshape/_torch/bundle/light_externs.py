"""Extern kernels of Inductor's code without importing its lowerings.

Owns the object that such code finds in the place of `select_algorithm.extern_kernels`: to import that module means to
import all lowerings, more than a second, and what the names of plain products stand for is known without it.
"""

from __future__ import annotations

from typing import Any

import torch

from anyshape._torch.repairs import operators  # noqa: F401 - which such code calls too

IMPORT = "from torch._inductor.select_algorithm import extern_kernels"
LIGHT = f"from {__name__} import extern_kernels"
_PLAIN = frozenset(("mm", "addmm", "bmm", "baddbmm", "convolution"))


class _Kernels:
    def __getattr__(self, name: str) -> Any:
        if name in _PLAIN:
            kernel = getattr(torch, name)
        else:
            from torch._inductor import select_algorithm

            kernel = getattr(select_algorithm.extern_kernels, name)
        setattr(self, name, kernel)
        return kernel


extern_kernels = _Kernels()
