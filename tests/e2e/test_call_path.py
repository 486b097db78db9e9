"""A seen call goes past Dynamo's frame evaluation: all that its guards see is still seen."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anyshape
from anyshape._torch.graphs import memory
from anyshape.testing import expect_programs

SCALE = 2


def test_every_call_after_the_first_goes_straight(taken: list[bool]) -> None:
    f = anyshape.compile(lambda x, *, k=1: x.sum(0) * k, backend="aot_eager")
    with expect_programs(1):
        for n in (4, 4, 7, 0, 1, 4):
            torch.testing.assert_close(f(torch.ones(n, 2), k=3), torch.full((2,), 3.0 * n))
    assert f.programs[0].calls == 6
    assert taken[0] is False and taken[1] is True and taken[-1] is True


def test_inputs_that_are_written_are_told_apart_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    share = memory.share_memory

    def counted(written: Any, read: Any) -> bool:
        asked.append((len(written), len(read)))
        return share(written, read)

    monkeypatch.setattr(memory, "share_memory", counted)

    def fn(xs: list[Tensor], y: Tensor) -> None:
        for x in xs:
            x.add_(y)

    f = anyshape.compile(fn, backend="aot_eager")
    with expect_programs(1):
        for n in (4, 7, 4):
            f([torch.randn(n) for _ in range(20)], torch.ones(n))
    before = len(asked)
    f([torch.randn(4) for _ in range(20)], torch.ones(4))
    assert asked[before:] == [(20, 1)]


def test_programs_in_turn(taken: list[bool]) -> None:
    f = anyshape.compile(lambda x: x * 2 if x.shape[0] > 3 else x + 1, backend="aot_eager")
    for n in (5, 2, 5, 2, 9, 1):
        x = torch.randn(n)
        torch.testing.assert_close(f(x), x * 2 if n > 3 else x + 1)
    assert len(f.programs) == 2 and taken[2:4] == [True, True]


def test_a_global_a_closure_and_an_attribute_that_change(monkeypatch: pytest.MonkeyPatch, taken: list[bool]) -> None:
    factor = 3

    class Holder:
        shift = 1

    holder = Holder()
    fn = lambda x: x * SCALE * factor + holder.shift
    f = anyshape.compile(fn, backend="aot_eager")
    x = torch.randn(3)
    for change in (
        lambda: None,
        lambda: monkeypatch.setitem(globals(), "SCALE", 5),
        lambda: setattr(holder, "shift", 7),
    ):
        change()
        for _ in range(3):
            torch.testing.assert_close(f(x), fn(x))
    factor = 4
    for _ in range(3):
        torch.testing.assert_close(f(x), fn(x))
    assert taken.count(True) >= 6


def test_modes_dtypes_and_layouts_are_told_apart() -> None:
    fn = lambda x: (x * 2).sum(-1)
    f = anyshape.compile(fn, backend="aot_eager")
    x = torch.randn(4, 3)
    for _ in range(2):
        for given in (x, x.double(), x.t().contiguous().t(), x.clone().requires_grad_(), x.to(torch.complex64)):
            ours, eager = f(given), fn(given)
            torch.testing.assert_close(ours, eager)
            assert ours.requires_grad == eager.requires_grad
        with torch.no_grad():
            assert not f(x.clone().requires_grad_()).requires_grad
        with torch.inference_mode():
            assert f(x).is_inference()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.testing.assert_close(f(x), fn(x))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


@pytest.mark.filterwarnings("ignore:Using `torch.compile")
@pytest.mark.parametrize("make", [Net, lambda: nn.Sequential(nn.Linear(3, 3))])
def test_hooks_that_come_later_run_as_with_torch_compile(make: Callable[[], nn.Module]) -> None:
    def hooked(compile: Any) -> list[str]:
        torch.manual_seed(0)
        net, x, seen = make(), torch.randn(2, 3), list[str]()
        f = compile(net, backend="aot_eager")
        for _ in range(2):
            torch.testing.assert_close(f(x), net(x))
        for module, name in [(net, "own"), (f, "compiled"), (net.get_submodule("layer" if make is Net else "0"), "in")]:
            handles = [
                module.register_forward_hook(lambda m, i, o, name=name: seen.append(f"after {name}")),
                module.register_forward_pre_hook(lambda m, i, name=name: seen.append(f"before {name}")),
            ]
            f(x)
            for handle in handles:
                handle.remove()
        everywhere = nn.modules.module.register_module_forward_hook(lambda m, i, o: seen.append("global"))
        f(x)
        everywhere.remove()
        return seen

    with torch._dynamo.config.patch(skip_nnmodule_hook_guards=False):  # else torch does not see those of inner modules
        wanted = hooked(torch.compile)
    assert hooked(anyshape.compile) == wanted


def test_training_and_parameters_that_are_replaced() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(1.0)).eval()
    f = anyshape.compile(net, backend="aot_eager")
    x = torch.randn(2, 3)
    for _ in range(2):
        torch.testing.assert_close(f(x), net(x))
    net.train()
    assert not f(x).any()
    net.eval()
    net[0].weight = nn.Parameter(torch.zeros(3, 3))
    torch.testing.assert_close(f(x), net(x))


def test_something_guarded_that_is_gone() -> None:
    """An object's id is guarded: another one at the same place is another one."""

    class Box:
        def __init__(self, value: int) -> None:
            self.value = value

    def fn(x: Tensor, box: Box) -> Tensor:
        return x * box.value

    f = anyshape.compile(fn, backend="aot_eager")
    x = torch.randn(3)
    for value in range(8):
        box = Box(value)
        for _ in range(2):
            torch.testing.assert_close(f(x, box), x * value)
        gone = weakref.ref(box)
        del box
        assert gone() is None


def test_one_tensor_in_two_places() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return x * y

    f = anyshape.compile(fn, backend="aot_eager")
    for _ in range(3):
        x, y = torch.randn(3), torch.randn(3)
        torch.testing.assert_close(f(x.clone(), y), fn(x.clone(), y))
        both, alike = x.clone(), x.clone()
        torch.testing.assert_close(f(both, both), fn(alike, alike))


def plain(x: Tensor) -> Tensor:
    return x * 3


def logged(seen: list[int]) -> Callable[[Any], Any]:
    def decorate(fn: Any) -> Any:
        @functools.wraps(fn)
        def wrapper(x: Tensor) -> Tensor:
            seen.append(1)
            return fn(x)

        return wrapper

    return decorate


def test_decorated_functions() -> None:
    seen: list[int] = []
    f = anyshape.compile(logged(seen)(plain), backend="aot_eager")
    g = anyshape.compile(torch.no_grad()(plain), backend="aot_eager")
    for n in (3, 3, 1, 5):
        x = torch.randn(n, requires_grad=True)
        torch.testing.assert_close(f(x), plain(x))
        assert not g(x).requires_grad
    assert len(seen) == 4


def test_inside_another_compiled_function_and_under_modes() -> None:
    f = anyshape.compile(plain, backend="aot_eager")
    x = torch.randn(4)
    f(x)
    outer = torch.compile(lambda x: f(x) + 1, backend="aot_eager")
    for _ in range(2):
        torch.testing.assert_close(outer(x), plain(x) + 1)
    with torch._subclasses.fake_tensor.FakeTensorMode() as mode:
        assert f(mode.from_tensor(x)).shape == x.shape
    with torch.utils.flop_counter.FlopCounterMode(display=False):
        torch.testing.assert_close(f(x), plain(x))
    torch.testing.assert_close(torch.func.grad(lambda x: f(x).sum())(x), torch.full((4,), 3.0))


def test_a_wrong_call_gets_pythons_error() -> None:
    f = anyshape.compile(plain, backend="aot_eager")
    f(torch.randn(3))
    with pytest.raises(TypeError, match="plain"):
        f()
    with pytest.raises(TypeError, match="plain"):
        f(torch.randn(3), y=1)


def test_a_forward_that_is_put_in_place_of_the_first(taken: list[bool]) -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2

    f = anyshape.compile(Scaled(), backend="aot_eager")
    x = torch.randn(3)
    for _ in range(3):
        torch.testing.assert_close(f(x), x * 2)
    assert taken[-1] is True
    seen = []
    inner = f.forward

    def counted(x: Tensor) -> Tensor:
        seen.append(x)
        return inner(x)

    f.forward = counted  # of the compiled module
    for _ in range(3):
        torch.testing.assert_close(f(x), x * 2)
    assert len(seen) == 3
    f._orig_mod.forward = lambda x: x * 5  # of the module's
    for _ in range(3):
        torch.testing.assert_close(f(x), x * 5)
    del f._orig_mod.forward
    Scaled.forward = lambda self, x: x * 7  # type: ignore[method-assign]  # of its class
    for _ in range(3):
        torch.testing.assert_close(f(x), x * 7)


def test_a_function_whose_code_is_reloaded(taken: list[bool]) -> None:
    def fn(x: Tensor) -> Tensor:
        return x * 2

    def newer(x: Tensor) -> Tensor:
        return x * 3

    f = anyshape.compile(fn, backend="aot_eager")
    x = torch.randn(3)
    for _ in range(3):
        torch.testing.assert_close(f(x), x * 2)
    assert taken[-1] is True
    fn.__code__ = newer.__code__
    for n in (3, 3, 5, 1, 0):
        x = torch.randn(n)
        torch.testing.assert_close(f(x), x * 3)
