"""`out=` where eager resizes, casts, warns or raises, and where buffers are laid out or shared in unusual ways.

Each case runs eagerly and compiled on separately made, equal arguments; compared are the result and its type, which of the
arguments it is, every tensor's contents, size, strides and offset, the warnings, and the type of an exception.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import anyshape

Make = Callable[[], tuple[Any, ...]]
LONG = torch.long


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    fn: Callable[..., Any]
    calls: tuple[Make, ...]
    programs: int | None = None  # None: not asserted, eager may have to do it
    context: Callable[[], Any] = contextlib.nullcontext
    inductor_warns: str = ""  # a warning of Inductor's own about this case, which eager does not give

    def __str__(self) -> str:
        return self.name


def rand(*shape: int, **options: Any) -> torch.Tensor:
    return torch.randn(*shape, **options)


def zeros(*shape: Any, **options: Any) -> torch.Tensor:
    """A buffer; what an op that raises leaves in it is compared too."""
    return torch.zeros(*shape, **options)


def add(x: torch.Tensor, y: Any, out: Any) -> Any:
    return torch.add(x, y, out=out)


def mm(a: torch.Tensor, b: torch.Tensor, out: Any) -> Any:
    return torch.mm(a, b, out=out)


def topk(x: torch.Tensor, values: torch.Tensor, indices: torch.Tensor) -> Any:
    return torch.topk(x, 2, out=(values, indices))


def into_slice(x: torch.Tensor, buffer: torch.Tensor) -> Any:
    torch.mul(x, 2, out=buffer[: x.shape[0]])
    return buffer


def into_intermediate(x: torch.Tensor) -> Any:
    out = torch.empty_like(x)
    torch.sin(x, out=out)
    return out + 1


def into_empty_intermediate(x: torch.Tensor) -> Any:
    out = torch.empty(0)
    torch.sin(x, out=out)
    return out + 1


def into_resized_intermediate(x: torch.Tensor) -> Any:
    out = x.new_empty(2)
    torch.sin(x, out=out)
    return out + 1


def chained(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> Any:
    torch.add(x, y, out=out)
    torch.mul(out, 2, out=out)
    return out.sum(), out


def through(x: torch.Tensor, *, out: torch.Tensor | None = None) -> Any:
    return torch.relu(x) if out is None else torch.clamp(x, 0, out=out)


def passes_through(x: torch.Tensor, out: torch.Tensor) -> Any:
    return through(x, out=out), through(x)


def pair(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return rand(n), rand(n)


def overlapping(n: int) -> tuple[torch.Tensor, ...]:
    base = rand(n + 1)
    return base[:-1], rand(n), base[1:]


def halves(n: int) -> tuple[torch.Tensor, ...]:
    base = rand(2 * n)
    return base[:n], rand(n), base[n:]


def aliased(n: int) -> tuple[torch.Tensor, ...]:
    x = rand(n)
    return x, rand(n), x


def same_buffers(n: int) -> tuple[torch.Tensor, ...]:
    out = zeros(2)
    return rand(n), out, out


def two_columns(n: int) -> tuple[torch.Tensor, ...]:
    base = torch.zeros(2, 2)
    return rand(n), base[0], zeros(2, dtype=LONG)


class Holder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("out", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> Any:
        return torch.sum(x, 0, out=self.out)


CLOSED_OVER = torch.zeros(4)


def into_global(x: torch.Tensor) -> Any:
    torch.sum(x, 0, out=CLOSED_OVER)
    return CLOSED_OVER.clone()


def sizes(make: Callable[[int], tuple[Any, ...]], *ns: int) -> tuple[Make, ...]:
    return tuple(lambda n=n: make(n) for n in ns)


def requires_grad(x: torch.Tensor) -> torch.Tensor:
    return x.requires_grad_()


ALL = (5, 1, 0, 2, 7)

CASES = [
    # resize
    Case("empty buffer is resized", add, sizes(lambda n: (*pair(n), zeros(0)), *ALL)),
    Case("empty buffer of the result's rank", mm, sizes(lambda n: (rand(n, 3), rand(3, 4), zeros(0, 4)), *ALL)),
    Case("empty among good ones", add, sizes(lambda n: (*pair(n), zeros(n if n % 2 else 0)), 5, 4, 7, 6, 1, 0), 1),
    Case("smaller buffer is resized with a warning", add, sizes(lambda n: (*pair(n), zeros(3)), 3, 5, 4, 0), 1),
    Case("larger buffer is resized with a warning", add, sizes(lambda n: (*pair(n), zeros(n + 3)), *ALL)),
    Case("buffer of another rank", add, sizes(lambda n: (*pair(n), zeros(n, 1)), *ALL)),
    Case("same numel, another shape", add, sizes(lambda n: (rand(n, 2), rand(n, 2), zeros(2, n)), 5, 2, 3)),
    Case("0-d buffer for a vector", add, sizes(lambda n: (*pair(n), zeros(())), *ALL)),
    Case("vector buffer for a 0-d result", lambda x, o: torch.sum(x, 0, out=o), sizes(lambda n: (rand(n), zeros(3)), *ALL)),
    Case("both buffers of topk are resized", topk, sizes(lambda n: (rand(n), zeros(0), zeros(0, dtype=LONG)), 5, 2, 7)),
    Case("one buffer of topk is resized", topk, sizes(lambda n: (rand(n), zeros(2), zeros(5, dtype=LONG)), 5, 2, 7)),
    Case("intermediate of no elements", into_empty_intermediate, sizes(lambda n: (rand(n),), *ALL)),
    Case("intermediate resized with a warning", into_resized_intermediate, sizes(lambda n: (rand(n),), 5, 2, 7)),
    Case("buffer with a non-contiguous layout is resized", add, sizes(lambda n: (rand(n, 3), rand(n, 3), zeros(3, n + 1).T), 5, 2)),
    Case("sliced buffer is resized", add, sizes(lambda n: (*pair(n), torch.zeros(20)[2:6]), 5, 4, 7)),
    # dtype
    Case("float64 buffer", add, sizes(lambda n: (*pair(n), zeros(n, dtype=torch.double)), *ALL)),
    Case("float16 buffer", add, sizes(lambda n: (*pair(n), zeros(n, dtype=torch.half)), *ALL)),
    Case("int buffer for floats raises", add, sizes(lambda n: (*pair(n), zeros(n, dtype=torch.int)), 5, 0)),
    Case("float buffer for ints", add, sizes(lambda n: (torch.arange(n), torch.arange(n), zeros(n)), *ALL)),
    Case("complex buffer for floats", add, sizes(lambda n: (*pair(n), zeros(n, dtype=torch.cfloat)), *ALL)),
    Case("float buffer for complex raises", add, sizes(lambda n: (rand(n, dtype=torch.cfloat), rand(n), zeros(n)), 5)),
    Case("float buffer for a comparison", lambda x, y, o: torch.gt(x, y, out=o), sizes(lambda n: (*pair(n), zeros(n)), *ALL)),
    Case("bool buffer for a comparison", lambda x, y, o: torch.gt(x, y, out=o), sizes(lambda n: (*pair(n), zeros(n, dtype=torch.bool)), *ALL), 1),
    Case("mm into another dtype raises", mm, sizes(lambda n: (rand(n, 3), rand(3, 4), zeros(n, 4, dtype=torch.double)), 5, 2)),
    Case("indices into another dtype raise", topk, sizes(lambda n: (rand(n), zeros(2), zeros(2, dtype=torch.int)), 5, 7)),
    Case("sum into double", lambda x, o: torch.sum(x, 0, out=o), sizes(lambda n: (rand(n, 3, dtype=torch.half), zeros(3, dtype=torch.double)), *ALL)),
    Case("argmax into int raises", lambda x, o: torch.argmax(x, 1, out=o), sizes(lambda n: (rand(n, 3), zeros(n, dtype=torch.int)), 5, 2)),
    Case("mean of ints into float", lambda x, o: torch.mean(x, 0, dtype=torch.float, out=o), sizes(lambda n: (torch.arange(3 * n).reshape(n, 3), zeros(3)), 5, 2, 7), 1),
    # device
    Case("meta buffer for a real result raises", add, sizes(lambda n: (*pair(n), zeros(n, device="meta")), 5, 2)),
    Case("all meta", add, sizes(lambda n: (rand(n, device="meta"), rand(n, device="meta"), zeros(n, device="meta")), 5, 2)),
    # grad
    Case("argument requires grad", add, sizes(lambda n: (requires_grad(rand(n)), rand(n), zeros(n)), 5, 2)),
    Case("buffer requires grad", add, sizes(lambda n: (*pair(n), requires_grad(torch.zeros(n))), 5, 2)),
    Case("argument requires grad, no_grad", add, sizes(lambda n: (requires_grad(rand(n)), rand(n), zeros(n)), *ALL), 1, torch.no_grad),
    Case("buffer requires grad, no_grad", add, sizes(lambda n: (*pair(n), requires_grad(torch.zeros(n))), *ALL), None, torch.no_grad),
    Case("inference mode", add, sizes(lambda n: (*pair(n), zeros(n)), *ALL), 1, torch.inference_mode),
    Case("comparison of what requires grad", lambda x, y, o: torch.gt(x, y, out=o), sizes(lambda n: (requires_grad(rand(n)), rand(n), zeros(n, dtype=torch.bool)), *ALL), 1),
    Case("topk of what requires grad", topk, sizes(lambda n: (requires_grad(rand(n)), zeros(2), zeros(2, dtype=LONG)), 5, 7)),
    # overlap and aliasing
    Case("buffer is an argument", add, sizes(aliased, *ALL), 1),
    Case("buffer overlaps an argument in part", add, sizes(overlapping, 5, 1, 2)),
    Case("good first, then overlap in part", add, (lambda: (*pair(5), zeros(5)), lambda: overlapping(5), lambda: overlapping(7))),
    Case("good first, then an alias", add, (lambda: (*pair(5), zeros(5)), lambda: aliased(5), lambda: aliased(1))),
    Case("two halves of one tensor", add, sizes(halves, 5, 1, 2)),
    Case("transposed alias", lambda x, o: torch.add(x, 1, out=o), (lambda: (lambda x: (x, x.T))(rand(3, 3)), lambda: (lambda x: (x, x.T))(rand(5, 5)))),
    Case("the same buffer twice", topk, sizes(same_buffers, 5)),
    Case("buffer is a row of another", topk, sizes(two_columns, 5, 2, 7)),
    Case("cumsum into its argument", lambda x: torch.cumsum(x, 0, out=x), sizes(lambda n: (rand(n),), *ALL)),
    Case("cat into an argument raises", lambda x, y: torch.cat([x[:2], y], out=x), sizes(lambda n: (rand(n + 2), rand(n)), 3, 5)),
    Case("in a chain", chained, sizes(lambda n: (*pair(n), zeros(n)), *ALL), 1),
    # layout
    Case("transposed buffer", mm, sizes(lambda n: (rand(n, 3), rand(3, 4), zeros(4, n).T), *ALL)),
    Case("transposed buffer first seen at two", mm, sizes(lambda n: (rand(n, 3), rand(3, 4), zeros(4, n).T), 5, 2, 7), 1),
    Case("strided buffer", add, sizes(lambda n: (*pair(n), torch.zeros(2 * n)[::2]), *ALL)),
    Case("strided buffer, from two on", add, sizes(lambda n: (*pair(n), torch.zeros(3 * n)[::3]), 5, 2, 7), 1),
    Case("sliced buffer", into_slice, sizes(lambda n: (rand(n), torch.zeros(8)), *ALL), 1),
    Case("column of a matrix", add, sizes(lambda n: (*pair(n), torch.zeros(n, 3)[:, 1]), 5, 2, 7), 1),
    Case("buffer with an offset", add, sizes(lambda n: (*pair(n), torch.zeros(n + 4)[3 : 3 + n]), *ALL), 1),
    Case("channels last buffer", add, sizes(lambda n: (rand(n, 3, 4, 4), rand(n, 3, 4, 4), zeros(n, 3, 4, 4).to(memory_format=torch.channels_last)), 5, 2, 7), 1),
    Case("expanded buffer raises", add, sizes(lambda n: (*pair(n), torch.zeros(1).expand(n)), 5, 2)),
    Case("strided first, then expanded", add, (lambda: (*pair(5), torch.zeros(10)[::2]), lambda: (*pair(5), torch.zeros(1).expand(5)))),
    Case("expanded argument", add, sizes(lambda n: (rand(1).expand(n), rand(n), zeros(n)), 5, 2, 7), 1),
    Case("conjugated buffer", add, sizes(lambda n: (rand(n, dtype=torch.cfloat), 1, torch.zeros(n, dtype=torch.cfloat).conj()), 5, 2)),
    # broadcasts
    Case("a real broadcast", add, sizes(lambda n: (rand(n, 3), rand(3), zeros(n, 3)), *ALL), 1),
    Case("a scalar", add, sizes(lambda n: (rand(n), 2.5, zeros(n)), *ALL), 1),
    Case("size one broadcasts", add, (lambda: (rand(5), rand(1), zeros(5)), lambda: (rand(7), rand(1), zeros(7)))),
    Case("unequal arguments raise", add, (lambda: (*pair(5), zeros(5)), lambda: (rand(4), rand(5), zeros(5)))),
    # 0-d, complex, kinds of call
    Case("0-d", lambda x, o: torch.sum(x, 0, out=o), sizes(lambda n: (rand(n), zeros(())), *ALL), 1),
    Case("an op that takes no out here", lambda x, o: torch.sum(x, out=o), sizes(lambda n: (rand(n), zeros(())), 5, 2)),
    Case("0-d all the way", add, (lambda: (rand(()), rand(()), zeros(())),) * 2, 1),
    Case("complex", mm, sizes(lambda n: (rand(n, 3, dtype=torch.cfloat), rand(3, 2, dtype=torch.cfloat), zeros(n, 2, dtype=torch.cfloat)), *ALL), 1, inductor_warns="Torchinductor does not support code generation for complex"),
    Case("real part of complex", lambda x, o: torch.abs(x, out=o), sizes(lambda n: (rand(n, dtype=torch.cfloat), zeros(n)), *ALL), 1),
    Case("out=None", add, sizes(lambda n: (*pair(n), None), *ALL), 1),
    Case("positional out", lambda x, o: torch.norm(x, 2, 1, False, o), sizes(lambda n: (rand(n, 3), zeros(n)), *ALL), 1),
    Case("positional out of tensordot", lambda a, b, o: torch.tensordot(a, b, 1, o), sizes(lambda n: (rand(n, 3), rand(3, 4), zeros(n, 4)), *ALL), 1),
    Case("aten overload", lambda a, b, o: torch.ops.aten.mm.out(a, b, out=o), sizes(lambda n: (rand(n, 3), rand(3, 4), zeros(n, 4)), *ALL), 1),
    Case("aten overload with two buffers", lambda a, v, i: torch.ops.aten.topk.values(a, 2, values=v, indices=i), sizes(lambda n: (rand(n), zeros(2), zeros(2, dtype=LONG)), 5, 2, 7), 1),
    Case("aten packet", lambda a, b, o: torch.ops.aten.mm(a, b, out=o), sizes(lambda n: (rand(n, 3), rand(3, 4), zeros(n, 4)), *ALL), 1),
    Case("linalg", lambda x, o: torch.linalg.vector_norm(x, dim=1, out=o), sizes(lambda n: (rand(n, 3), zeros(n)), *ALL), 1),
    Case("list of arguments", lambda x, y, o: torch.cat([x, y], out=o), sizes(lambda n: (rand(n), rand(3), zeros(n + 3)), *ALL), 1),
    Case("user function passes out through", passes_through, sizes(lambda n: (rand(n), zeros(n)), *ALL), 1),
    Case("intermediate", into_intermediate, sizes(lambda n: (rand(n),), *ALL), 1),
    Case("a module's buffer", Holder(), sizes(lambda n: (rand(n, 4),), *ALL), 1),
    Case("a global", into_global, sizes(lambda n: (rand(n, 4),), *ALL), 1),
    Case("named tuple of max", lambda x, v, i: torch.max(x, 1, out=(v, i)), sizes(lambda n: (rand(n, 3), zeros(n), zeros(n, dtype=LONG)), *ALL), 1),
    Case("named tuple's fields", lambda x, v, i: torch.sort(x, out=(v, i)).values + 1, sizes(lambda n: (rand(n), zeros(n), zeros(n, dtype=LONG)), *ALL), 1),
    Case("list of buffers", lambda x, v, i: torch.topk(x, 2, out=[v, i]), sizes(lambda n: (rand(n), zeros(2), zeros(2, dtype=LONG)), 5, 2, 7), 1),
    Case("op that gives back nothing", lambda x, a, b: torch.unbind_copy(x, out=[a, b]), sizes(lambda n: (rand(2, n), zeros(n), zeros(n)), 5, 2, 7)),
    # factories
    Case("arange into float", lambda x, o: torch.arange(x.shape[0], out=o), sizes(lambda n: (rand(n), zeros(n)), *ALL), 1),
    Case("zeros", lambda x, o: torch.zeros(x.shape, out=o), sizes(lambda n: (rand(n, 2), torch.ones(n, 2, dtype=torch.double)), *ALL), 1),
    Case("full", lambda x, o: torch.full(x.shape, 3, out=o), sizes(lambda n: (rand(n), torch.ones(n)), *ALL), 1),
    Case("empty", lambda x, o: torch.empty(x.shape, out=o), sizes(lambda n: (rand(n), torch.ones(n)), *ALL), 1),
    # data-dependent sizes
    Case("nonzero", lambda x, o: torch.nonzero(x, out=o), (lambda: (torch.eye(3), zeros(3, 2, dtype=LONG)), lambda: (torch.eye(4), zeros(3, 2, dtype=LONG)))),
]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Outcome:
    result: Any
    error: type[BaseException] | None
    text: str
    warnings: list[str]
    args: tuple[Any, ...]


def run(fn: Callable[..., Any], make: Make, context: Callable[[], Any]) -> Outcome:
    torch.manual_seed(0)
    with context():
        args = make()
        result, error, text = None, None, ""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                result = fn(*args)
            except Exception as e:
                error, text = type(e), str(e)
    return Outcome(result, error, text, [_first_line(w) for w in caught if issubclass(w.category, UserWarning)], args)


def _first_line(warning: warnings.WarningMessage) -> str:
    return str(warning.message).split("\n")[0][:80]


def layout(t: torch.Tensor) -> Any:
    strides = [s for n, s in zip(t.shape, t.stride(), strict=True) if n > 1] if t.numel() else []
    return tuple(t.shape), strides, t.storage_offset() if t.numel() else 0, t.dtype, t.device


def assert_same(eager: Outcome, compiled: Outcome, *, may_warn: str = "") -> None:
    assert compiled.error is eager.error, compiled.text
    assert [w for w in compiled.warnings if not (may_warn and w.startswith(may_warn))] == eager.warnings
    for mine, theirs in ((compiled.args, eager.args), (compiled.result, eager.result)):
        a, b = pytree.tree_leaves(mine), pytree.tree_leaves(theirs)
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            if isinstance(y, torch.Tensor):
                assert layout(x) == layout(y)
                torch.testing.assert_close(x, y, equal_nan=True)
    assert type(compiled.result) is type(eager.result)
    assert identity(compiled) == identity(eager)


def identity(outcome: Outcome) -> list[int | None]:
    """Which argument each part of the result is."""
    args = pytree.tree_leaves(outcome.args)
    parts = pytree.tree_leaves(outcome.result)
    return [next((i for i, a in enumerate(args) if a is p), None) for p in parts if isinstance(p, torch.Tensor)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_as_eager(case: Case) -> None:
    check(case, backend="aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_as_eager_with_inductor(case: Case) -> None:
    check(case, backend="inductor")


def check(case: Case, **options: Any) -> None:
    torch._dynamo.reset()
    compiled = anyshape.compile(case.fn, **options)
    for make in case.calls:
        eager, result = run(case.fn, make, case.context), run(compiled, make, case.context)
        assert_same(eager, result, may_warn=case.inductor_warns if options["backend"] == "inductor" else "")
    if case.programs is not None:
        assert len(compiled.programs) == case.programs, [p.behavior for p in compiled.programs]
