"""A compiled graph as bytes, loaded without compiling.

Owns the value that is written to a file. Loading generates nothing and compiles nothing; what only computes is loaded
without a compiler's modules.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Mapping
from typing import Any

from anyshape._torch.bundle.plain_code import Plain


@dataclasses.dataclass(frozen=True)
class Bundle:
    """Plain code or AOTAutograd's result, pickled, and the kernels that its code asks for, by digest."""

    entry: bytes
    kernels: Mapping[str, bytes]
    is_plain: bool

    def load(self) -> Callable[..., Any]:
        """The compiled graph. The bytes have to be trusted: they are unpickled, and their code is run."""
        if not self.is_plain:
            from anyshape._torch.bundle import aot_results

            return aot_results.load(self)
        made = pickle.loads(self.entry)
        assert isinstance(made, Plain)
        return made.run(self.kernels)
