"""`anyshape.testing`: checks for users' own tests, compile counts and comparison with eager.

Owns `expect_programs`, which counts what is compiled, and `assert_any_shape`, which compares a function with eager over
sizes and layouts. Uses the public face only, so that what it says is what a user sees.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, TypeAlias, TypeVar, overload

import torch

from anyshape import compiler
from anyshape._torch.runtime import trees
from anyshape.errors import DeclarationError
from anyshape.explain import describe, explain
from anyshape.foundation.option_types import CompileOptions
from anyshape.programs import Program

if TYPE_CHECKING:
    from typing_extensions import Unpack

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
M = TypeVar("M", bound=torch.nn.Module)
_Layout: TypeAlias = Literal["contiguous", "transposed", "sliced"]
LAYOUTS: Final[tuple[_Layout, ...]] = ("contiguous", "transposed", "sliced")
SIZES = (5, 7, 3, 2, 1, 0)


# -- counting --------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Compiled:
    """The programs compiled so far in an `expect_programs` block."""

    programs: list[Program] = dataclasses.field(default_factory=list)

    def __len__(self) -> int:
        return len(self.programs)


@contextlib.contextmanager
def expect_programs(expected: int, *functions: Callable[..., object], at_most: bool = False) -> Iterator[Compiled]:
    """Fail unless exactly `expected` programs are compiled in the block; with `at_most`, fewer are allowed.

    Counts the programs of all functions compiled by anyshape, or only those of `functions` if you pass some.
    """
    if type(expected) is not int or expected < 0:
        raise DeclarationError(
            "how many programs are expected is a number, 0 or more",
            where="expect_programs(expected)",
            value=repr(expected)[:80],
            fix="with expect_programs(1): ...",
            code="AS007",
        )
    seen = Compiled()
    before = [len(explain(f).programs) for f in functions]
    observer = seen.programs.append
    compiler.observers.append(observer)
    try:
        yield seen
    finally:
        compiler.observers.remove(observer)
    if functions:
        seen.programs[:] = [p for f, n in zip(functions, before, strict=True) for p in explain(f).programs[n:]]
    count = len(seen)
    if count > expected or (count < expected and not at_most):
        raise AssertionError(_miscount(seen.programs, expected, at_most))


def _miscount(programs: Sequence[Program], expected: int, at_most: bool) -> str:
    lines = [f"expected {'at most ' if at_most else ''}{expected} programs, {len(programs)} were compiled"]
    for number, program in enumerate(programs, 1):
        first, *rest = describe(program).splitlines()
        lines += [f"  {number}. {first}", *(f"     {line}" for line in rest)]
    return "\n".join(lines)


# -- comparing with eager --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a call did: its result or the exception it raised, its inputs and their gradients afterwards."""

    result: Any
    error: BaseException | None
    inputs: tuple[Any, ...]
    gradients: tuple[Any, ...] = ()
    resized: bool = False  # torch warned that it resized an `out=` buffer


@dataclasses.dataclass(frozen=True)
class Failure:
    """A call whose outcome is not eager's."""

    sizes: tuple[int, ...]
    layout: str
    text: str


@overload
def assert_any_shape(
    fn: M,
    make_inputs: Callable[..., object],
    *,
    sizes: Sequence[int | Sequence[int]] = SIZES,
    layouts: Sequence[_Layout] = LAYOUTS,
    compile: None = None,
    max_programs: int | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    **compile_options: Unpack[CompileOptions],
) -> M: ...
@overload
def assert_any_shape(
    fn: Callable[P, R],
    make_inputs: Callable[..., object],
    *,
    sizes: Sequence[int | Sequence[int]] = SIZES,
    layouts: Sequence[_Layout] = LAYOUTS,
    compile: None = None,
    max_programs: int | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    **compile_options: Unpack[CompileOptions],
) -> compiler.CompiledFunction[P, R]: ...
@overload
def assert_any_shape(
    fn: Callable[..., object],
    make_inputs: Callable[..., object],
    *,
    sizes: Sequence[int | Sequence[int]] = SIZES,
    layouts: Sequence[_Layout] = LAYOUTS,
    compile: Callable[..., T],
    max_programs: int | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    **compile_options: object,
) -> T: ...
def assert_any_shape(
    fn: Callable[..., Any],
    make_inputs: Callable[..., object],
    *,
    sizes: Sequence[int | Sequence[int]] = SIZES,
    layouts: Sequence[_Layout] = LAYOUTS,
    compile: Callable[..., Any] | None = None,
    max_programs: int | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    **compile_options: Any,
) -> Any:
    """Compile `fn` once and compare it with eager for every size and layout. Return the compiled function.

    `make_inputs(*size)` returns the arguments, as a tuple or a single value. An entry of `sizes` is an int or a tuple
    of ints. These are compared: values, shapes, strides, dtypes, mutation of the inputs, aliasing of outputs and
    inputs, and the type of an exception. `compile` (by default `anyshape.compile`) gets `compile_options`.
    """
    if not isinstance(sizes, Sequence) or isinstance(sizes, str) or not sizes:
        raise DeclarationError(
            "sizes are a list with an int or a tuple of ints for each call",
            where="assert_any_shape(fn, make_inputs, sizes=...)",
            value=repr(sizes)[:80],
            fix="sizes=[5, 1, 0], or sizes=[(2, 3), (1, 5)]",
            code="AS007",
        )
    compiled = (compile or compiler.compile)(fn, **compile_options)
    failures: list[Failure] = []
    for entry, layout in itertools.product(sizes, layouts):
        size = (entry,) if isinstance(entry, int) else tuple(entry)
        given = make_inputs(*size)
        arguments = laid_out(given if isinstance(given, tuple) else (given,), layout)
        text = difference(fn, compiled, arguments, rtol=rtol, atol=atol)
        if text is not None:
            failures.append(Failure(size, layout, text))
    if failures:
        raise AssertionError(_report(failures, len(sizes) * len(layouts)))
    programs = getattr(compiled, "programs", ())
    if max_programs is not None and len(programs) > max_programs:
        raise AssertionError(_miscount(programs, max_programs, at_most=True))
    return compiled


def difference(
    fn: Callable[..., Any],
    compiled: Callable[..., Any],
    arguments: tuple[Any, ...],
    *,
    backward: bool = False,
    rtol: float | None = None,
    atol: float | None = None,
) -> str | None:
    """Describe how a call of `compiled` differs from eager `fn`, in a line; None if it does not. Each gets copies.

    With `backward` the gradients of the inputs are compared too.
    """
    want, got = (run_once(f, copies(arguments), backward=backward) for f in (fn, compiled))
    return outcome_difference(want, got, rtol, atol)


def _report(failures: Sequence[Failure], total: int) -> str:
    smallest = min(
        failures, key=lambda f: (sum(f.sizes), f.sizes, LAYOUTS.index(f.layout) if f.layout in LAYOUTS else 9)
    )
    lines = [
        f"{len(failures)} of {total} calls differ from eager; "
        f"the smallest is at sizes {smallest.sizes}, {smallest.layout}:",
        f"  {smallest.text}",
    ]
    others = [f for f in failures if f is not smallest]
    lines += [f"  also at {f.sizes}, {f.layout}: {f.text.splitlines()[0]}" for f in others[:8]]
    if len(others) > 8:
        lines.append(f"  and {len(others) - 8} more")
    return "\n".join(lines)


def run_once(fn: Callable[..., Any], arguments: tuple[Any, ...], *, backward: bool = False) -> Outcome:
    """What a call of `fn` with these very arguments does."""
    torch.manual_seed(0)
    result: Any = None
    error: BaseException | None = None
    with _noticing_resizes() as resizes:
        try:
            result = fn(*arguments)
            if backward:
                _differentiate(result)
        except Exception as raised:
            error = raised
    gradients = tuple(t.grad for t in trees.leaves(arguments) if isinstance(t, torch.Tensor) and t.is_leaf)
    return Outcome(result, error, arguments, gradients if backward else (), bool(resizes))


@contextlib.contextmanager
def _noticing_resizes() -> Iterator[list[str]]:
    """Torch's warnings that an `out=` buffer was resized; every other warning goes its way."""
    seen: list[str] = []
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    with warnings.catch_warnings():
        warnings.filterwarnings("always", message=".*was resized")
        others = warnings.showwarning

        def show(message: Warning | str, *rest: Any) -> None:
            if "was resized" in str(message):
                seen.append(str(message))
            else:
                others(message, *rest)

        warnings.showwarning = show  # type: ignore[assignment]
        try:
            yield seen
        finally:
            torch.set_warn_always(always)


def _differentiate(result: Any) -> None:
    """Backward from everything in a result that has a gradient, with gradients that are not all alike."""
    outputs = [t for t in trees.leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    seeds = [(torch.arange(t.numel()) % 3 + 1).reshape(t.shape).to(t.dtype) for t in outputs]
    if outputs:
        torch.autograd.backward(outputs, seeds)


def laid_out(arguments: tuple[Any, ...], layout: str) -> tuple[Any, ...]:
    """The same values in memory another way."""

    def leaf(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.dim() == 0:
            return value
        if layout == "contiguous":
            made = value.detach().contiguous()
        elif layout == "transposed":
            made = value.detach().mT.contiguous().mT if value.dim() > 1 else value.detach().contiguous()
        elif layout == "sliced":
            room = value.new_zeros([*value.shape[:-1], 2 * value.shape[-1] + 1])
            room[..., 1::2].copy_(value.detach())
            made = room[..., 1::2]
        else:
            raise ValueError(f"layout {layout!r} is not one of {', '.join(LAYOUTS)}")
        return made.requires_grad_(value.requires_grad)

    return tuple(trees.map_leaves(leaf, arguments))


def copies(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copies that keep strides, and memory shared between arguments."""
    memory: dict[int, torch.UntypedStorage] = {}

    def leaf(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return copy.deepcopy(value)
        if value.layout is not torch.strided:
            return value.detach().clone().requires_grad_(value.requires_grad)
        storage = value.untyped_storage()
        held = memory.get(storage.data_ptr()) if storage.nbytes() else storage.clone()
        if held is None:
            held = memory[storage.data_ptr()] = storage.clone()
        made = torch.empty(0, dtype=value.dtype, device=value.device)
        made.set_(held, value.storage_offset(), value.shape, value.stride())
        return made.requires_grad_(value.requires_grad)

    return tuple(trees.map_leaves(leaf, arguments))


def outcome_difference(want: Outcome, got: Outcome, rtol: float | None, atol: float | None) -> str | None:
    """How `got` is not what eager did, in a line; None if it is."""
    if want.error is not None or got.error is not None:
        if type(want.error) is not type(got.error):
            return f"eager {_ended(want)}, compiled {_ended(got)}"
    else:
        text = _trees(want.result, got.result, "result", rtol, atol)
        if text is not None:
            return text
        mine, theirs = _sharing(want), _sharing(got)
        if mine != theirs:
            return f"outputs share memory as {theirs}, in eager as {mine}"
    if want.resized != got.resized:
        return (
            f"a buffer was {'' if got.resized else 'not '}resized with a warning, in eager it was{_not(want.resized)}"
        )
    return _trees(want.inputs, got.inputs, "input", rtol, atol) or _trees(
        want.gradients, got.gradients, "gradient", rtol, atol
    )


def _not(flag: bool) -> str:
    return "" if flag else " not"


def _trees(want: Any, got: Any, what: str, rtol: float | None, atol: float | None) -> str | None:
    ours, form = trees.flatten(want)
    theirs, other = trees.flatten(got)
    if form != other:
        return f"{what} has the structure {other}, in eager {form}"
    for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        text = _leaves(a, b, rtol, atol)
        if text is not None:
            return f"{what} {index}: {text}" if len(ours) > 1 else f"{what}: {text}"
    return None


def _leaves(want: Any, got: Any, rtol: float | None, atol: float | None) -> str | None:
    if not isinstance(want, torch.Tensor) or not isinstance(got, torch.Tensor):
        return None if type(want) is type(got) and _equal(want, got) else f"{got!r}, in eager {want!r}"
    if want.shape != got.shape:
        return f"shape {tuple(got.shape)}, in eager {tuple(want.shape)}"
    if want.dtype != got.dtype:
        return f"{got.dtype}, in eager {want.dtype}"
    if want.requires_grad != got.requires_grad:
        return f"requires_grad {got.requires_grad}, in eager {want.requires_grad}"
    if want.layout is torch.strided and 0 not in want.shape:
        addressed = [i for i, n in enumerate(want.shape) if n > 1]
        if any(want.stride(i) != got.stride(i) for i in addressed):
            return f"strides {got.stride()}, in eager {want.stride()}"
    try:
        torch.testing.assert_close(got, want, rtol=rtol, atol=atol, equal_nan=True, check_stride=False)
    except AssertionError as error:
        return "values: " + " ".join(str(error).split())
    return None


def _equal(want: Any, got: Any) -> bool:
    if type(want).__eq__ is object.__eq__:  # type: ignore[comparison-overlap]
        return True  # equal to itself alone, and each of the two calls has its own: the type is all there is to compare
    try:
        return bool(want == got) or (want != want and got != got)
    except Exception:
        return True  # an object without a comparison: the structure is all there is to compare


def _sharing(outcome: Outcome) -> list[int | None]:
    """For each output tensor the first tensor before it that it shares memory with: inputs come first, then outputs."""
    tensors = [t for t in trees.leaves((outcome.inputs, outcome.result)) if isinstance(t, torch.Tensor)]
    places: dict[int, int] = {}
    found: list[int | None] = []
    for place, tensor in enumerate(tensors):
        pointer = tensor.untyped_storage().data_ptr() if _addresses(tensor) else None
        found.append(places.get(pointer) if pointer is not None else None)
        if pointer is not None:
            places.setdefault(pointer, place)
    return found[len([t for t in trees.leaves(outcome.inputs) if isinstance(t, torch.Tensor)]) :]


def _addresses(value: Any) -> bool:
    """Whether a tensor has memory that anyone could read or write: an empty view of something has none."""
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and value.numel() > 0


def _ended(outcome: Outcome) -> str:
    if outcome.error is None:
        return "returned"
    text = str(outcome.error).splitlines()
    return f"raised {type(outcome.error).__name__}" + (f" ({text[0][:200]})" if text else "")
