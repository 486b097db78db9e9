"""A compiled function or module from its making to its end."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anyshape
from anyshape.testing import difference, expect_programs


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) * self.scale

    def embed(self, x: Tensor) -> Tensor:
        return self.body[0](x)


def calls(f: Any, fn: Any, sizes: tuple[int, ...] = (4, 1, 0, 7)) -> None:
    for n in sizes:
        assert difference(fn, f, (torch.randn(n, 3),)) is None


# -- modules -----------------------------------------------------------------------------------------------------


def test_a_module_keeps_its_state() -> None:
    net = Net()
    f = anyshape.compile(net, backend="aot_eager")
    assert isinstance(f, nn.Module)
    assert [id(p) for p in f.parameters()] == [id(p) for p in net.parameters()]
    saved = {k.removeprefix("_orig_mod."): v for k, v in f.state_dict().items()}
    assert saved.keys() == net.state_dict().keys()
    stock = torch.compile(Net(), backend="aot_eager")
    assert f.state_dict().keys() == stock.state_dict().keys()
    other = Net()
    other.load_state_dict(saved)
    other.eval(), f.eval()
    calls(f, other)


def test_loading_a_state_needs_no_new_program() -> None:
    net, other = Net().eval(), Net().eval()
    f = anyshape.compile(net, backend="aot_eager")
    with expect_programs(1):
        calls(f, net)
        net.load_state_dict(other.state_dict())
        calls(f, other)


def test_train_and_eval() -> None:
    net = Net()
    f = anyshape.compile(net, backend="aot_eager")
    with expect_programs(2):
        for training in (True, False, True, False):
            f.train(training)
            assert net.training is training
            assert net.body[1].training is training
            calls(f, net)


def test_to_another_dtype() -> None:
    net = Net().eval()
    f = anyshape.compile(net, backend="aot_eager")
    calls(f, net)
    f.double()
    assert net.body[0].weight.dtype is torch.float64
    for n in (4, 1, 0):
        assert difference(net, f, (torch.randn(n, 3, dtype=torch.float64),)) is None
    assert len(f.programs) == 2


def test_hooks_on_parts_run() -> None:
    net = Net().eval()
    seen: list[tuple[int, ...]] = []
    net.body[0].register_forward_hook(lambda module, given, out: out + 1)
    net.body[2].register_forward_pre_hook(lambda module, given: (given[0] * 2,))
    net.body[2].register_forward_hook(lambda module, given, out: seen.append(tuple(out.shape)))
    f = anyshape.compile(net, backend="aot_eager")
    calls(f, net)
    assert seen == [(n, 2) for n in (4, 1, 0, 7) for _ in range(2)]


def test_hooks_on_the_whole_run() -> None:
    net = Net().eval()
    net.register_forward_pre_hook(lambda module, given: (given[0] + 1,))
    net.register_forward_hook(lambda module, given, out: out * 3)
    f = anyshape.compile(net, backend="aot_eager")
    calls(f, net)


def test_hooks_added_to_the_compiled_module() -> None:
    net = Net().eval()
    f = anyshape.compile(net, backend="aot_eager")
    calls(f, net)
    handle = f.register_forward_hook(lambda module, given, out: out + 10)
    x = torch.randn(5, 3)
    torch.testing.assert_close(f(x), net(x) + 10)  # as in torch.compile, it is the compiled module's own
    handle.remove()
    calls(f, net)


def test_attributes_and_other_methods_are_the_modules() -> None:
    net = Net().eval()
    f = anyshape.compile(net, backend="aot_eager")
    assert f.scale is net.scale
    x = torch.randn(4, 3)
    assert torch.equal(f.embed(x), net.embed(x))
    f.scale = torch.tensor(5.0)
    calls(f, net)


def test_two_modules_of_a_class() -> None:
    nets = [Net().eval() for _ in range(3)]
    compiled = [anyshape.compile(net, backend="aot_eager") for net in nets]
    for _ in range(2):
        for f, net in zip(compiled, nets, strict=True):
            calls(f, net)
    assert [len(f.programs) for f in compiled] == [1, 1, 1]


# -- functions, methods, decorators ------------------------------------------------------------------------------


def test_a_bare_decorator() -> None:
    @anyshape.compile
    def fn(x: Tensor) -> Tensor:
        """Doubles."""
        return x * 2

    assert (fn.__name__, fn.__doc__) == ("fn", "Doubles.")
    for n in (4, 1, 0):
        assert torch.equal(fn(torch.ones(n)), torch.ones(n) * 2)
    assert len(fn.programs) == 1


def test_a_decorator_with_options() -> None:
    @anyshape.compile(backend="aot_eager", fullgraph=True)
    def fn(x: Tensor) -> Tensor:
        return x * 2

    for n in (4, 1, 0):
        assert torch.equal(fn(torch.ones(n)), torch.ones(n) * 2)
    assert len(fn.programs) == 1


class Scaler:
    def __init__(self, factor: Tensor) -> None:
        self.factor = factor

    @anyshape.compile(backend="aot_eager")
    def scale(self, x: Tensor) -> Tensor:
        return x * self.factor

    def shift(self, x: Tensor) -> Tensor:
        return x + self.factor

    @staticmethod
    @anyshape.compile(backend="aot_eager")
    def halve(x: Tensor) -> Tensor:
        return x / 2

    @classmethod
    def make(cls, x: Tensor) -> Tensor:
        return x * 4


def test_a_decorated_method() -> None:
    before = len(Scaler.scale.programs)
    for factor in (2.0, 3.0):
        scaler = Scaler(torch.tensor(factor))
        for n in (4, 1, 0, 7):
            assert torch.equal(scaler.scale(torch.ones(n)), torch.full((n,), factor))
    assert len(Scaler.scale.programs) - before == 1


def test_static_class_and_bound_methods() -> None:
    scaler = Scaler(torch.tensor(2.0))
    shift = anyshape.compile(scaler.shift, backend="aot_eager")
    make = anyshape.compile(Scaler.make, backend="aot_eager")
    for n in (4, 1, 0, 7):
        assert torch.equal(Scaler.halve(torch.ones(n)), torch.full((n,), 0.5))
        assert torch.equal(shift(torch.ones(n)), torch.full((n,), 3.0))
        assert torch.equal(make(torch.ones(n)), torch.full((n,), 4.0))
    assert len(shift.programs) == len(make.programs) == 1


def test_compiling_twice_gives_the_same() -> None:
    f = anyshape.compile(lambda x: x + 1, backend="aot_eager")
    assert anyshape.compile(f) is f
    net = anyshape.compile(Net(), backend="aot_eager")
    assert anyshape.compile(net) is net


def test_a_compiled_function_called_by_another() -> None:
    inner = anyshape.compile(lambda x: x.sum(0), backend="aot_eager")
    outer = anyshape.compile(lambda x: inner(x) * 2, backend="aot_eager")
    calls(outer, lambda x: x.sum(0) * 2)


def test_a_compiled_function_called_by_a_stock_one() -> None:
    inner = anyshape.compile(lambda x: x.sum(0), backend="aot_eager")
    outer = torch.compile(lambda x: inner(x) * 2, backend="aot_eager")
    calls(outer, lambda x: x.sum(0) * 2)


def test_two_compilations_of_one_function_are_apart() -> None:
    fn = lambda x: x * 3
    one, two = anyshape.compile(fn, backend="aot_eager"), anyshape.compile(fn, backend="eager")
    calls(one, fn)
    assert (len(one.programs), len(two.programs)) == (1, 0)
    calls(two, fn)
    assert (len(one.programs), len(two.programs)) == (1, 1)


# -- pickle and deepcopy -----------------------------------------------------------------------------------------


def test_pickle_of_a_function_is_refused() -> None:
    with pytest.raises(anyshape.Error) as caught:
        pickle.dumps(anyshape.compile(lambda x: x + 1))
    assert caught.value.code == "AS004"


def test_deepcopy_of_a_function_is_refused() -> None:
    with pytest.raises(anyshape.Error) as caught:
        copy.deepcopy(anyshape.compile(lambda x: x + 1))
    assert caught.value.code == "AS005"


def test_the_original_can_still_be_copied() -> None:
    net = Net().eval()
    f = anyshape.compile(net, backend="aot_eager")
    calls(f, net)
    twin = copy.deepcopy(net)
    calls(anyshape.compile(twin, backend="aot_eager"), net)
    assert pickle.loads(pickle.dumps(net)).scale == net.scale


# -- resets, stances, limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("reset", [torch._dynamo.reset, torch.compiler.reset])
def test_a_reset_is_survived(reset: Any) -> None:
    fn = lambda x: x * 2 if x.shape[0] > 3 else x + 1
    f = anyshape.compile(fn, backend="aot_eager")
    calls(f, fn)
    assert len(f.programs) == 2
    for _ in range(2):
        reset()
        assert f.programs == ()
        calls(f, fn)
        assert len(f.programs) == 2
    assert f.fallbacks == {}


def test_a_reset_of_a_module_is_survived() -> None:
    net = Net().eval()
    f = anyshape.compile(net, backend="aot_eager")
    calls(f, net)
    torch._dynamo.reset()
    assert f.programs == ()
    calls(f, net)
    assert len(f.programs) == 1


def test_disable_is_honoured() -> None:
    ran = []

    @torch.compiler.disable
    def aside(x: Tensor) -> Tensor:
        ran.append(torch.compiler.is_compiling())
        return x + 1

    fn = lambda x: aside(x * 2) * 3
    f = anyshape.compile(fn, backend="aot_eager")
    with expect_programs(2):
        calls(f, fn)
    assert ran == [False] * 8


def test_the_option_disable() -> None:
    f = anyshape.compile(lambda x: x + 1, backend="aot_eager", disable=True)
    with expect_programs(0):
        calls(f, lambda x: x + 1)


def test_a_stance_is_honoured() -> None:
    fn = lambda x: x * 2
    f = anyshape.compile(fn, backend="aot_eager")
    with expect_programs(0), torch.compiler.set_stance("force_eager"):
        calls(f, fn)
    with expect_programs(1):
        calls(f, fn)
    with expect_programs(0), torch.compiler.set_stance("force_eager"):
        calls(f, fn)
    assert f.programs[0].calls == 4


def test_a_stance_that_forbids_compiling() -> None:
    fn = lambda x: x * 2 if x.shape[0] > 3 else x + 1
    f = anyshape.compile(fn, backend="aot_eager")
    calls(f, fn, (5, 9))
    with torch.compiler.set_stance("eager_on_recompile"), expect_programs(0):
        calls(f, fn)
    with torch.compiler.set_stance("fail_on_recompile"):
        calls(f, fn, (6, 11))
        with pytest.raises(RuntimeError):
            f(torch.randn(1, 3))
    calls(f, fn)
    assert len(f.programs) == 2


def twelve(x: Tensor) -> Tensor:
    n = x.shape[0]
    for i in range(11):
        if n == i:
            return x * i + n
    return x - 1


def test_the_recompile_limit_is_not_met() -> None:
    assert torch._dynamo.config.recompile_limit < 12
    f = anyshape.compile(twelve, backend="aot_eager")
    with expect_programs(12):
        for n in [*range(14), *range(14)]:
            assert difference(twelve, f, (torch.randn(n, 2),)) is None
    assert f.fallbacks == {}
    assert sum(p.calls for p in f.programs) == 28


def test_the_recompile_limit_is_not_met_with_fullgraph() -> None:
    f = anyshape.compile(twelve, backend="aot_eager", fullgraph=True)
    with expect_programs(12):
        for n in range(14):
            assert difference(twelve, f, (torch.randn(n, 2),)) is None


def test_functions_made_from_one_source_do_not_share_a_limit() -> None:
    made = [anyshape.compile(lambda x, k=k: x * k + 1, backend="aot_eager") for k in range(12)]
    with expect_programs(12):
        for k, f in enumerate(made):
            for n in (4, 1, 0):
                assert torch.equal(f(torch.ones(n)), torch.ones(n) * k + 1)


def test_a_function_whose_first_call_gives_back_its_input() -> None:
    """A call with nothing to compile does not turn the others away."""

    def fn(x: Tensor, depth: int) -> Tensor:
        for _ in range(depth):
            x = torch.tanh(x)
        return x

    f = anyshape.compile(fn, backend="aot_eager")
    with expect_programs(3):
        for depth in (0, 2, 1, 0, 2):
            assert difference(fn, f, (torch.randn(4), depth)) is None


def test_a_backend_of_the_users() -> None:
    seen = []

    def backend(graph: Any, inputs: Any) -> Any:
        seen.append(len(list(graph.graph.nodes)))
        return graph.forward

    fn = lambda x: (x * 2).sum(0)
    f = anyshape.compile(fn, backend=backend)
    calls(f, fn)
    assert len(seen) == 1
    assert len(f.programs) == 1


def test_a_backend_that_fails() -> None:
    def backend(graph: Any, inputs: Any) -> Any:
        raise ZeroDivisionError("no")

    stock = torch.compile(lambda x: x + 1, backend=backend)
    with pytest.raises(Exception) as theirs:
        stock(torch.ones(3))
    f = anyshape.compile(lambda x: x + 1, backend=backend)
    with pytest.raises(Exception) as ours:
        f(torch.ones(3))
    assert type(ours.value) is type(theirs.value)
    g = anyshape.compile(lambda x: x + 1, backend="aot_eager")
    calls(g, lambda x: x + 1)
