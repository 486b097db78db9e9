"""The text of Inductor's CPU kernels.

Owns the seam where it is rewritten before it is compiled; what is rewritten is told in `raising_loops` and
`masked_loads`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from torch._inductor.codegen import cpp

from anyshape._torch.masked_loads import with_addresses
from anyshape._torch.raising_loops import with_errors_kept


@contextlib.contextmanager
def patches() -> Iterator[None]:
    """While Inductor compiles."""
    stock = cpp.CppScheduling.define_kernel

    def define_kernel(self: Any, src_code: str, *args: Any, **kwargs: Any) -> Any:
        return stock(self, with_errors_kept(with_addresses(src_code)), *args, **kwargs)

    with mock.patch.object(cpp.CppScheduling, "define_kernel", define_kernel):
        yield
