"""The text of Inductor's C++ kernels, rewritten before it is compiled.

Owns the seam where it is rewritten before it is compiled; what is rewritten is told in `raising_loops` and
`masked_loads`.
"""

from __future__ import annotations

from typing import Any

from anyshape._torch.repairs.cpp.masked_loads import with_addresses
from anyshape._torch.repairs.cpp.raising_loops import with_errors_kept
from anyshape._torch.repairs.registry import repair


@repair(
    "torch._inductor.codegen.cpp:CppScheduling.define_kernel",
    scope="compile",
    phase="codegen",
    broken="2.11-2.15",
    symptom="An index out of bounds ends the process, and so does a masked load from an empty tensor.",
    cause="codegen/cpp.py throws out of OpenMP loops (see raising_loops), and loads from null (masked_loads).",
    cure="The text of a kernel keeps errors until its loop is done, and has an address where there is no memory.",
    goes="when Inductor's own C++ code does both",
)
def define_kernel(stock: Any) -> Any:
    def defined(self: Any, src_code: str, *args: Any, **kwargs: Any) -> Any:
        return stock(self, with_errors_kept(with_addresses(src_code)), *args, **kwargs)

    return defined
