"""Numbers in texts.

Owns one repair (torch 2.11 to 2.15): of `f"{n}"` Dynamo remembers where `n` came from, and gives the number itself back
where the text is returned. What is said of the text (`!r`) is left out, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch._dynamo.variables import StringFormatVariable
from torch._dynamo.variables.tensor import SymNodeVariable

_stock: Any = getattr(InstructionTranslatorBase, "_format_value", None)
_CONVERSIONS = {0: "", 1: "!s", 2: "!r", 3: "!a"}


def _format_value(self: Any, fmt_spec: Any, flags: int) -> None:
    if not isinstance(self.stack[-1], SymNodeVariable) or not fmt_spec.is_python_constant():
        return _stock(self, fmt_spec, flags)  # type: ignore[no-any-return]
    form = f"{{{_CONVERSIONS[flags & 3]}:{fmt_spec.as_python_constant()}}}"
    self.push(StringFormatVariable.create(form, [self.pop()], {}))
    return None


@contextlib.contextmanager
def patches() -> Iterator[None]:
    """For a capture."""
    if _stock is None:
        yield
        return
    with mock.patch.object(InstructionTranslatorBase, "_format_value", _format_value):
        yield
