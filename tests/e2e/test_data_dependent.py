"""Programs whose sizes are born from data: one program each under `fullgraph=True`, equal to eager, and no eager call."""

from __future__ import annotations

import re
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from asserting_cases import Refuses, asserted, drawn_then_asserted, written_then_asserted
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

import anyshape
from anyshape._torch.repairs.dynamo import graph_breaks
from anyshape.engine.engine import UNCHECKED
from anyshape.testing import difference, outcome_difference, run_once


def _numbers(n: int) -> torch.Tensor:
    return torch.arange(n) * 7 % 5 - 2


def nonzero(x: torch.Tensor) -> torch.Tensor:
    return torch.nonzero(x).float() * 2


def item(x: torch.Tensor) -> torch.Tensor:
    count = (x > 0).sum().item()
    return torch.ones(count) / 2


def tolist(x: torch.Tensor) -> torch.Tensor:
    few, many = torch.stack([(x > 1).sum(), (x > -1).sum()]).tolist()
    return torch.zeros(few).sum() + torch.ones(many).sum()


def mask(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].sin() + 1


def mask_of_rows(x: torch.Tensor) -> torch.Tensor:
    rows = x[:, None] * torch.ones(3)
    return (rows[x > 0] @ torch.ones(3, 2)).relu()


def write_by_mask(x: torch.Tensor) -> torch.Tensor:
    y = x.float()
    y[x < 0] = -y[x < 0]
    return y


def rest_of_a_view(x: torch.Tensor) -> torch.Tensor:
    rows = x[:, None] * torch.ones(3)
    return rows.masked_select((x > 0)[:, None]).view(-1, 3) + 1


def unique(x: torch.Tensor) -> torch.Tensor:
    values, places, counts = torch.unique(x, return_inverse=True, return_counts=True)
    return values[places] * counts[places]


def repeat(x: torch.Tensor) -> torch.Tensor:
    return torch.repeat_interleave(x.float(), x.clamp(min=0)) + 1


def split(x: torch.Tensor) -> torch.Tensor:
    first = (x > 0).sum().item()
    low, high = torch.split(x, [first, x.shape[0] - first])
    return torch.cat([high + 1, low * 2])


def cut(x: torch.Tensor) -> torch.Tensor:
    end = (x > 0).sum().item()
    return x[:end].cumsum(0)


def ragged(x: torch.Tensor) -> torch.Tensor:
    """A batch of rows of different lengths, laid out flat and summed by row."""
    lengths = x.clamp(min=0)
    row = torch.repeat_interleave(torch.arange(x.shape[0]), lengths)
    values = torch.ones_like(row, dtype=torch.float) * row
    return torch.zeros(x.shape[0]).index_add(0, row, values)


def select(x: torch.Tensor) -> torch.Tensor:
    """As non-maximum suppression does: the best first, those that are too near to a better one dropped."""
    score, order = x.float().sort(descending=True, stable=True)
    near = (score[:, None] - score[None, :]).abs() < 0.5
    dropped = torch.triu(near, diagonal=1).any(0)
    return order[~dropped]


def routing(x: torch.Tensor) -> torch.Tensor:
    """Each expert takes the tokens that chose it, which may be none."""
    tokens = x[:, None].float() * torch.ones(4)
    chosen = x % 3
    out = torch.zeros_like(tokens)
    for expert in range(3):
        index = torch.where(chosen == expert)[0]
        out = out.index_add(0, index, tokens[index] * (expert + 1))
    return out


def routing_by_order(x: torch.Tensor) -> torch.Tensor:
    """Tokens sorted by expert, cut where the next expert's begin."""
    tokens = x[:, None].float() * torch.ones(4)
    order = torch.argsort(x % 3, stable=True)
    counts = torch.nn.functional.one_hot(x % 3, 3).sum(0)
    parts = torch.split(tokens[order], counts.tolist())
    done = torch.cat([part * (i + 1) for i, part in enumerate(parts)])
    return torch.zeros_like(tokens).index_copy(0, order, done)


def checked(x: torch.Tensor) -> torch.Tensor:
    count = (x > -3).sum().item()
    torch._check(count <= x.shape[0])
    return x.narrow(0, 0, count) + 1


def bounded(x: torch.Tensor) -> torch.Tensor:
    """Calls that read a number from a tensor and give none back."""
    most = (x > 1).sum()
    return torch.clamp(x + most, 0, most * 2 - 1) + torch.full_like(x, most)


def early_exit(x: torch.Tensor) -> torch.Tensor:
    """Whether to go on is decided in the graph."""
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x.float(),))


PROGRAMS: list[Callable[..., Any]] = [
    nonzero, item, tolist, mask, mask_of_rows, write_by_mask, rest_of_a_view, unique, repeat, split, cut, ragged, select, routing,
    routing_by_order, checked, bounded, early_exit,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_one_program(program: Callable[..., Any]) -> None:
    f = anyshape.compile(program, backend="aot_eager", fullgraph=True)
    for n in (7, 12, 1, 30, 0):
        x = _numbers(n)
        torch.testing.assert_close(f(x), program(x), equal_nan=True)
    assert f.fallbacks == {}
    assert len(f.programs) == 1


def _third(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].select(0, 2)


def _third_from_behind(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0][-3]


def _third_written(x: torch.Tensor) -> torch.Tensor:
    y = x[x > 0]
    y[2] = 9
    return y


def _third_written_through_a_view(x: torch.Tensor) -> torch.Tensor:
    y = x[x > 0]
    y.select(0, 2).mul_(3)
    return y


def _third_scattered(x: torch.Tensor) -> torch.Tensor:
    return torch.select_scatter(x[x > 0], torch.tensor(7), 0, 2)


def _of_a_sum(x: torch.Tensor) -> torch.Tensor:
    y = x[x > 0]
    return torch.cat([y, y])[5]


def _at_a_number(x: torch.Tensor) -> torch.Tensor:
    return x[(x > 0).sum().item()]


def _at_a_number_of_rows(x: torch.Tensor) -> torch.Tensor:
    return x.expand(2, -1)[None, 1, ..., (x > 0).sum().item()]


def _up_to_a_number(x: torch.Tensor) -> torch.Tensor:
    return torch.ones((x > 0).sum().item())[2]


BOUNDED = [v for k, v in list(vars().items()) if k.startswith("_") and isinstance(v, types.FunctionType)]
BOUNDED.remove(_numbers)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("program", BOUNDED)
def test_bounds_of_what_comes_out_of_the_data(program: Callable[..., Any], backend: str) -> None:
    """Inductor's code would read beyond them; the memory around what is indexed is somebody else's."""
    f = anyshape.compile(program, backend=backend, fullgraph=True)
    around = torch.arange(64)
    raised = 0
    for values in ([1, 2, 3, 4], [0, 0, 0, 0], [5, 0, 6, 0], [1, 1, 1, 0, 0], [0, 0, 3]):
        x = around[8 : 8 + len(values)]
        x.copy_(torch.tensor(values))
        text = difference(program, f, (x,))
        assert text is None, f"{values}: {text}"
        try:
            program(x)
        except IndexError:
            raised += 1
    assert 0 < raised < 5
    assert len(f.programs) == 1


def test_a_check_of_the_programs_own_is_no_index_error() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x[x > 0]
        torch._check(y.shape[0] > 2)
        return y[2]

    f = anyshape.compile(fn, backend="aot_eager")
    for n in (4, 2):
        assert difference(fn, f, (torch.ones(n),)) is None


def test_sampling_loop() -> None:
    """Tokens are drawn until one ends the text; each step is the same program, whatever the length so far."""
    table = torch.randn(11, 11)

    def step(tokens: torch.Tensor) -> torch.Tensor:
        scores = table[tokens[:, -1]] + tokens.float().mean(1, keepdim=True)
        return torch.cat([tokens, scores.argmax(-1, keepdim=True)], 1)

    f = anyshape.compile(step, backend="aot_eager", fullgraph=True)
    for batch in (3, 1):
        mine = theirs = torch.arange(batch)[:, None]
        for _ in range(12):
            mine, theirs = f(mine), step(theirs)
            assert torch.equal(mine, theirs)
            if (mine[:, -1] == 0).all().item():
                break
    assert f.fallbacks == {} and len(f.programs) == 1


def test_a_branch_on_a_value_breaks_the_graph() -> None:
    def stops(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if y.sum().item() > 10:
            return y - 1
        return y.relu()

    f = anyshape.compile(stops, backend="aot_eager")
    for n in (7, 3, 1):
        for scale in (-1.0, 9.0):
            x = torch.full((n,), scale)
            torch.testing.assert_close(f(x), stops(x))
    assert f.fallbacks == {}
    (text,) = (b for p in f.programs for b in p.graph_breaks)
    assert re.match(r"a branch on a value that the graph computes, at .*test_data_dependent\.py:\d+$", text)


def test_a_branch_on_a_value_is_an_error_of_the_whole_graph() -> None:
    def stops(x: torch.Tensor) -> torch.Tensor:
        return x - 1 if x.sum().item() > 10 else x.relu()

    f = anyshape.compile(stops, backend="aot_eager", fullgraph=True)
    with pytest.raises(
        anyshape.errors.DataBranchError, match=r"AS025(.|\n)*test_data_dependent.py:\d+(.|\n)*torch.cond"
    ) as e:
        f(torch.ones(5))
    assert e.value.value is not None and "> 10" in str(e.value.value)


def _stretched(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Either of two unbacked sizes may be 1, and is stretched then."""
    return (x[x > 0].float() + y[y > 0].float()).sin() * 2


def test_what_follows_a_broadcast_of_born_sizes_is_captured() -> None:
    f = anyshape.compile(_stretched, backend="aot_eager")
    for n, m in ((8, 8), (12, 12), (8, 2), (2, 8), (2, 2), (1, 1)):
        x, y = torch.arange(n) % 4, torch.arange(m) % 4
        if m == 2:
            y = y.clamp(max=1)
        torch.testing.assert_close(f(x, y), _stretched(x, y))
    assert f.fallbacks == {}
    assert [p.calls for p in f.programs] == [6, 6]


def _weighed(x: torch.Tensor, expert: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """Rows by expert, each part in its own way, put together again: as many as there were, which `split` insists on."""
    order = expert.argsort(stable=True)
    parts = x[order].split((expert[:, None] == torch.arange(3)).sum(0).tolist())
    return torch.cat([part * (i + 1) for i, part in enumerate(parts)]) * gate[order][:, None]


def test_parts_that_add_up_to_a_known_size_are_no_break() -> None:
    f = anyshape.compile(_weighed, backend="aot_eager", fullgraph=True)
    for n in (8, 5, 2, 1, 0):
        given = torch.randn(n, 4), torch.arange(n) % 3, torch.rand(n)
        torch.testing.assert_close(f(*given), _weighed(*given))
    assert f.fallbacks == {} and len(f.programs) == 1


def test_the_rest_of_a_function_that_runs_eagerly_is_counted() -> None:
    f = anyshape.compile(torch.sin, backend="aot_eager")
    f(torch.ones(3))
    why = types.SimpleNamespace(
        reason="step_unsupported", user_stack=[types.SimpleNamespace(filename="model.py", lineno=3)]
    )
    f._engine.programs[0].recording.graph_breaks.append(graph_breaks.text(why))
    f(torch.ones(4))
    assert f.fallbacks == {"the rest of the function runs eagerly, from model.py:3": 2}


def _checked(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n = x.sum().long().item()
    torch._check(n == y.shape[0])
    return y + 1


def _checked_and_viewed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    n = x.sum().long().item()
    torch._check(n == y.shape[0])
    return torch.ones(n, 4).view(y.shape[0] * 4)


def _multiplied(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.ones(2, x.sum().long().item()) @ y[:, None]


def _stacked(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.stack([x[x > 0], y])


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("program", [_checked, _checked_and_viewed, _multiplied, _stacked])
def test_a_number_that_must_equal_a_size(program: Callable[..., Any], backend: str) -> None:
    """torch puts the size in its place, and the assertion compares the size with itself."""
    compiled = anyshape.compile(program, backend=backend, fullgraph=True)
    for numbers, size in (([1.0] * 3, 3), ([1.0, 1.0, -1.0], 3), ([1.0] * 4, 2), ([1.0] * 2, 2), ([1.0], 1)):
        text = difference(program, compiled, (torch.tensor(numbers), torch.ones(size)))
        assert text is None, f"{numbers}, {size}: {text}"
    assert len(compiled.programs) == 1


def test_one_row_is_stretched_to_a_size_out_of_the_data() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.expand_as(torch.ones(x.sum().long().item()))

    compiled = anyshape.compile(program, backend="aot_eager")
    for numbers in ([2.0], [0.0], [1.0], [1.0, 1.0], [2.0, 0.0], [1.0, 2.0]):
        text = difference(program, compiled, (torch.tensor(numbers),))
        assert text is None, f"{numbers}: {text}"


def test_a_product_over_sizes_of_which_one_may_be_one() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.einsum("i,i->", torch.ones(x.sum().long().item()), y)

    compiled = anyshape.compile(program, backend="aot_eager")
    for numbers, size in (([1.0] * 3, 3), ([1.0], 3), ([1.0, 1.0], 1), ([1.0], 1), ([1.0, 1.0], 3)):
        text = difference(program, compiled, (torch.tensor(numbers), torch.ones(size)))
        assert text is None, f"{numbers}, {size}: {text}"


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_an_assertion_without_words_is_kept(backend: str) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        torch._assert_async((x > 0).all())
        return x + 1

    compiled = anyshape.compile(program, backend=backend, fullgraph=True)
    for x in (torch.ones(3), -torch.ones(2), torch.ones(0), torch.ones(1), -torch.ones(1)):
        assert difference(program, compiled, (x,)) is None


def _number(x: torch.Tensor) -> int:
    return int(x.sum().long().item())


def _checked_value(x: torch.Tensor) -> torch.Tensor:
    n = _number(x)
    torch._check_value(n < 3, lambda: "too many")
    return x + n


def _checked_index(x: torch.Tensor) -> torch.Tensor:
    n = _number(x)
    torch._check_index(n < 3)
    return x + n


def _checked_before(x: torch.Tensor) -> torch.Tensor:
    n = _number(x)
    torch._check(n >= 2)
    return torch.ones(n).narrow(0, -2, 1)


TOLD_BY_DATA = {
    "assert": asserted,
    "_check_value": _checked_value,
    "_check_index": _checked_index,
    "_check and narrow": _checked_before,
    "narrow from the end": lambda x: torch.ones(_number(x)).narrow(0, -2, 1),
    "narrow too far": lambda x: torch.ones(_number(x)).narrow(0, 1, 2),
    "narrow from a number": lambda x: torch.ones(5).narrow(0, _number(x), 2),
    "kthvalue": lambda x: x[x > 0].kthvalue(1).values,
    "select": lambda x: torch.ones(5).select(0, _number(x)),
}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", TOLD_BY_DATA)
def test_what_does_not_hold_of_the_data_is_told_by_eager(name: str, backend: str) -> None:
    """The types and the words of errors are eager's, and the calls are counted."""
    program = TOLD_BY_DATA[name]
    compiled = anyshape.compile(program, backend=backend)
    raised = 0
    for numbers in ([1.0, 1.0], [1.0] * 3, [1.0], [-1.0], [4.0], [5.0], [6.0], [-5.0], [-6.0], [0.0]):
        x = torch.tensor(numbers)
        want, got = (run_once(f, (x.clone(),)) for f in (program, compiled))
        assert outcome_difference(want, got, None, None) is None, numbers
        assert str(want.error) == str(got.error)
        raised += want.error is not None
    assert sum(compiled.fallbacks.values()) == raised > 0
    assert len(compiled.programs) == 1


def test_an_error_of_the_data_has_nothing_of_anyshape_behind_it() -> None:
    for compiled in (anyshape.compile(asserted, backend="aot_eager"), anyshape.compile(Refuses(), backend="aot_eager")):
        compiled(torch.ones(2))
        with pytest.raises(AssertionError, match="too many") as caught:
            compiled(torch.ones(3))
        assert caught.value.__context__ is None


@pytest.mark.parametrize("program", [written_then_asserted, drawn_then_asserted])
def test_a_call_that_leaves_a_trace_is_not_made_again(program: Callable[..., Any]) -> None:
    compiled = anyshape.compile(program, backend="aot_eager")
    compiled(torch.ones(2))
    x = torch.ones(3)
    with pytest.raises(AssertionError):
        compiled(x)
    assert not compiled.fallbacks
    assert x.max() <= 2  # written to once at most


def test_a_selection_from_one_element() -> None:
    """torch knows that there are none or one of it, and takes unbacked sizes for such as may be 2."""

    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x[x > 0].sum(), x.squeeze().flatten().mul_(2)

    compiled = anyshape.compile(program, backend="aot_eager", fullgraph=True)
    for sizes in ((1, 1), (2, 3), (0, 2), (1, 4)):
        assert difference(program, compiled, (torch.ones(sizes),)) is None
    assert compiled.fallbacks == {}


def test_a_check_of_torchs_own_that_fails_is_no_error_of_the_call() -> None:
    compiled = anyshape.compile(torch.sin, backend=_checked_by_torch)
    x = torch.ones(3)
    with pytest.warns(anyshape.FallbackWarning, match="expected size 3==2"):
        assert torch.equal(compiled(x), x.sin())
    assert compiled.fallbacks == {UNCHECKED: 1}


def _checked_by_torch(graph: Any, inputs: Any) -> Any:
    def run(*args: Any) -> Any:
        raise AssertionError("expected size 3==2")

    return aot_autograd(fw_compiler=lambda graph, inputs: make_boxed_func(run))(graph, inputs)


FLOATS_OF_DATA: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "made a tensor": lambda x: torch.tensor([x[0].item()]) + x,
    "of two dims": lambda x: torch.tensor([[x[0].item()], [2.0]]) * x,
    "a bound": lambda x: x.clamp(max=x[0].item()),
    "a filling": lambda x: torch.full((x.shape[0],), x[0].item()) + x,
    "a slope": lambda x: torch.nn.functional.leaky_relu(x, x[0].item()),
}


@pytest.mark.parametrize("name", FLOATS_OF_DATA)
def test_floats_of_data_are_given_to_kernels(name: str) -> None:
    fn = FLOATS_OF_DATA[name]
    f = anyshape.compile(fn, backend="aot_eager", fullgraph=True)
    for n in (3, 1, 5):
        x = torch.randn(n)
        assert torch.equal(f(x), fn(x))
    assert len(f.programs) == 1 and not f.fallbacks
