"""Cases, drawn by hypothesis.

Owns how a case comes about: dims, inputs, calls, then one step after another. What a step gives is not predicted but
seen: each step is run eagerly at the sizes of every call as it is added, and the next one is drawn from the
values that are there.
"""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
import torch.nn.functional as F

from anyshape.errors import missing
from anyshape.fuzz import inputs
from anyshape.fuzz.case import FORMS, NUMBER, Call, Case, Input, Step, binds
from anyshape.fuzz.follows import FOLLOWERS, NUMBERS
from anyshape.fuzz.operations import FAMILIES, OPERATIONS, Operand, Operation

SIZES = (5, 3, 7, 2, 1, 0, 1, 0, 2, 4, 8, 13, 16)
MOST_STEPS = 6
LENGTHS = (1, 2, 1, 2, 1, 3, 1, 2, 1, 5)  # short programs are cheap, and most faults are faults of one or two steps
MOST_NUMEL = 4096
ATTEMPTS = 4  # for a step, until one is found that eager takes
REFUSED = 4  # one in so many that eager does not take is kept: its error is compared as results are
SCOPE = {"torch": torch, "F": F}
T = TypeVar("T")
Draw = Callable[[Any], Any]


def generate(seed: int, start: int = 0, stop: int = 100, *, most_steps: int = MOST_STEPS) -> Iterator[Case]:
    """Cases number `start` to `stop` of the campaign with this seed; each is the same whichever others are drawn."""
    state = torch.get_rng_state()
    for number in range(start, stop):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case = _drawn(seed * 1_000_003 + number, most_steps)
        torch.set_rng_state(state)
        yield case


def _drawn(seed: int, most_steps: int) -> Case:
    try:
        import hypothesis
        from hypothesis import HealthCheck, Phase, Verbosity
    except ImportError as error:
        raise missing("hypothesis", needed_for="generating programs", extra="fuzz") from error

    found: list[Case] = []

    # One run a case: within a run hypothesis mutates what it drew before, and near-copies find nothing new.
    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=2,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    @hypothesis.given(cases(most_steps))
    def collect(case: Case) -> None:
        found.append(case)

    collect()
    return found[-1]  # the first is the smallest there is, whatever the seed


def cases(most_steps: int = MOST_STEPS) -> Any:
    """The strategy."""
    from hypothesis import strategies as st

    @st.composite
    def drawn(draw: Draw) -> Case:
        return _case(Chooser(draw), most_steps)

    return drawn()


class Chooser:
    """What hypothesis draws, in the few forms that are needed."""

    def __init__(self, draw: Draw) -> None:
        from hypothesis import strategies as st

        self._draw, self._st = draw, st

    def integer(self, low: int, high: int) -> int:
        return int(self._draw(self._st.integers(low, high)))

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.integer(0, len(choices) - 1)]

    def once_in(self, n: int) -> bool:
        return self.integer(0, n - 1) == n - 1


class Witness:
    """The values of one call so far, as eager has them; `values` is None once eager has raised."""

    def __init__(self, case: Case, call: Call) -> None:
        self.sizes = dict(call.sizes)
        self.has_raised = False  # in the step last run
        made = inputs.arguments(case, call)
        # One namespace, so that a lambda or a comprehension in a step sees the names as it does in a function.
        self.values: dict[str, Any] | None = SCOPE | dict(zip((i.name for i in case.inputs), made, strict=True))

    def run(self, step: Step) -> bool:
        """Whether eager has a result."""
        if self.values is None:
            return False
        self.has_raised = False
        try:
            exec(step.source, self.values)
        except Exception:
            self.has_raised = True
            return False
        made = [v for n, v in self.values.items() if binds(step, n)]
        return all(_is_usable(v) for v in made)


def _case(chooser: Chooser, most_steps: int) -> Case:
    dims = "abc"[: chooser.integer(1, 3)]
    declared = tuple(_input(chooser, f"x{i}", dims) for i in range(chooser.integer(1, 3)))
    if chooser.once_in(8):
        declared = (*declared, Input("n", (chooser.pick(dims),), NUMBER))
    calls = _calls(chooser, dims, declared)
    case = Case(declared, (), (), calls, backward=any(i.grad for i in declared))
    witnesses = [Witness(case, call) for call in calls]
    guide = max(witnesses, key=lambda w: (min(w.sizes.values()), sum(w.sizes.values())))
    steps: list[Step] = []
    refused: Step | None = None
    for number in range(min(chooser.pick(LENGTHS), most_steps)):
        step, is_taken = _step(chooser, f"v{number}", guide, steps[-1] if steps else None)
        if step is None:
            continue
        steps.append(step)
        if not is_taken:
            refused = step
            break
        for witness in witnesses:
            if witness is not guide and not witness.run(step):
                witness.values = None
    assert guide.values is not None
    made = [n for n in guide.values if any(binds(s, n) for s in steps) and _is_usable(guide.values[n])]
    if refused is not None:  # what it would have made is asked for: compiled code may leave out what nobody reads
        made = [*_targets(refused), *made]
    used = set(itertools.chain.from_iterable(s.operands for s in steps))
    results = tuple(n for n in made if n not in used)[:6] or tuple(i.name for i in declared[:1])
    return Case(declared, tuple(steps), results, calls, chooser.pick(FORMS), case.backward)


def _input(chooser: Chooser, name: str, dims: str) -> Input:
    dtype = chooser.pick(("float32",) * 8 + inputs.DTYPES)
    shape = tuple(chooser.pick(dims) for _ in range(chooser.pick((2, 2, 1, 3, 3, 4, 0))))
    grad = dtype in ("float32", "float64") and chooser.once_in(4)
    return Input(name, shape, dtype, grad)


def _calls(chooser: Chooser, dims: str, declared: Sequence[Input]) -> tuple[Call, ...]:
    layouts = tuple(_layout(chooser) for _ in declared)
    calls: list[Call] = []
    for number in range(chooser.pick((3, 2, 4, 2, 3))):
        if chooser.once_in(4):
            size = chooser.pick(SIZES)
            sizes = dict.fromkeys(dims, size)
        else:
            sizes = {d: chooser.pick(SIZES) for d in dims}
        if number and chooser.once_in(6):
            layouts = tuple(_layout(chooser) for _ in declared)
        calls.append(Call(tuple(sizes.items()), layouts, chooser.integer(0, 9)))
    return tuple(calls)


def _layout(chooser: Chooser) -> str:
    return chooser.pick(inputs.LAYOUTS) if chooser.once_in(3) else "contiguous"


def _targets(step: Step) -> list[str]:
    return sorted({match[0] for match in re.finditer(rf"\b{step.target}(_\d+)?\b", step.source)})


def _step(chooser: Chooser, target: str, guide: Witness, last: Step | None) -> tuple[Step | None, bool]:
    """A step, and whether eager takes it: now and then one that it does not take, which is then the last."""
    for _ in range(ATTEMPTS):
        operation = _next(chooser, guide, last)
        operands = _operands(chooser, operation, guide)
        if operands is None:
            continue
        assert guide.values is not None
        attributes = _attributes(chooser, operation, guide.values[operands[0]])
        step = Step(operation.name, target, operands, attributes)
        if guide.run(step):
            return step, True
        for name in [n for n in guide.values if binds(step, n)]:
            del guide.values[name]
        if guide.has_raised and chooser.once_in(REFUSED):
            return step, False
    return None, False


def _next(chooser: Chooser, guide: Witness, last: Step | None) -> Operation:
    """Any operation; half the time one that goes well after the last, or that takes the number there is."""
    assert guide.values is not None
    followers = FOLLOWERS.get(OPERATIONS[last.op].family, ()) if last is not None else ()
    if last is None and "n" in guide.values:
        followers = NUMBERS
    if followers and chooser.once_in(2):
        return chooser.pick(followers)
    return chooser.pick(_BY_FAMILY[chooser.pick(FAMILIES)])


_NAME = re.compile(r"n|[xv]\d+(_\d+)?")  # what a step made, and not what a loop inside it left behind
_BY_FAMILY = {f: tuple(o for o in OPERATIONS.values() if o.family == f) for f in FAMILIES}


def _operands(chooser: Chooser, operation: Operation, guide: Witness) -> tuple[str, ...] | None:
    assert guide.values is not None
    names: list[str] = []
    for operand in operation.operands:
        first = guide.values[names[0]] if names else None
        named = [n for n, v in guide.values.items() if _NAME.fullmatch(n) and _is_usable(v)]
        fitting = [n for n in named if _fits(operand, guide.values[n], first)]
        if not fitting:
            return None
        # The newest more often than the others, so that steps follow from one another.
        names.append(chooser.pick([*fitting, *fitting[-2:], fitting[-1]]))
    return tuple(names)


def _fits(operand: Operand, value: Any, first: Any) -> bool:
    if _kind(value) not in operand.kinds:
        return False
    if not isinstance(value, torch.Tensor):
        return True
    if not operand.least <= value.dim() <= operand.most:
        return False
    if not operand.goes_with or not isinstance(first, torch.Tensor):
        return True
    if operand.goes_with == "=":
        return value.shape == first.shape
    if operand.goes_with == "@":
        inner = value.shape[-2] if value.dim() > 1 else value.shape[0]
        return value.dtype == first.dtype and first.shape[-1] == inner
    pairs = zip(reversed(value.shape), reversed(first.shape), strict=False)
    return all(a == b or a == 1 or b == 1 for a, b in pairs)


def _kind(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return "n"
    if value.dtype.is_complex:
        return "c"
    if value.dtype.is_floating_point:
        return "f"
    return "b" if value.dtype is torch.bool else "i"


def _is_usable(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.layout is torch.strided and value.dim() <= 5 and value.numel() <= MOST_NUMEL
    return type(value) is int and abs(value) <= MOST_NUMEL


def _attributes(chooser: Chooser, operation: Operation, first: Any) -> tuple[tuple[str, Any], ...]:
    chosen: dict[str, Any] = {}
    shape = tuple(first.shape) if isinstance(first, torch.Tensor) else ()
    for name, draw in operation.attributes:
        chosen[name] = _attribute(chooser, draw, shape, chosen)
    return tuple(chosen.items())


def _attribute(chooser: Chooser, draw: str, shape: tuple[int, ...], chosen: dict[str, Any]) -> Any:
    rank = len(shape)
    kind, _, rest = draw.partition(":")
    if kind == "dim":
        return chooser.integer(-rank, rank - 1)
    if kind == "dim_new":
        return chooser.integer(-rank - 1, rank)
    if kind in ("index", "index0"):
        size = shape[chosen["dim"] if kind == "index" else 0]
        return chooser.integer(-size, size - 1) if size else 0
    if kind == "perm":
        order = list(range(rank))
        for i in range(rank - 1):
            j = chooser.integer(i, rank - 1)
            order[i], order[j] = order[j], order[i]
        return ", ".join(map(str, order))
    if kind == "bool":
        return chooser.once_in(2)
    if kind == "int":
        low, high = rest.split(":")
        return chooser.integer(int(low), int(high))
    if kind == "const":
        return int(rest)
    return chooser.pick((rest or draw).split(","))
