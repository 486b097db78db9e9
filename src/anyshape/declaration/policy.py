"""What is declared of one tensor of a call.

Owns the value that the entry check hands to a capture.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from anyshape.declaration.expression import Clause
from anyshape.declaration.shape import Dim


@dataclasses.dataclass(frozen=True)
class TensorPolicy:
    """What is declared of one tensor: a dim for each of its dims, and its layout."""

    path: str
    dims: tuple[Dim, ...]
    layout: str | None = None
    clauses: tuple[Clause, ...] = ()  # of marks: they come with the tensor, and are checked by the program
    hints: Mapping[str, int] = dataclasses.field(default_factory=dict)
