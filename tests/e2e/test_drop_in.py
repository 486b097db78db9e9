"""What people who come from `torch.compile` rely on: its arguments, its switches, hooks, copies and limits."""

from __future__ import annotations

import copy
import io
import pickle
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import anyshape


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.temperature, self.steps = nn.Linear(3, 3), 1.0, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).relu() / self.temperature


class Counting(Scaled):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        return self.inner(x) * self.steps


class Counted:
    """A backend that counts its graphs."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.graphs += 1
        return graph


def same(f: Callable[..., Any], fn: Callable[..., Any], *sizes: int) -> None:
    for n in sizes or (4, 1, 0, 7):
        x = torch.randn(n, 3)
        assert torch.equal(f(x), fn(x)), n


# -- hooks -------------------------------------------------------------------------------------------------------


def test_hooks_added_and_removed_later_are_seen() -> None:
    model = nn.Sequential(Scaled(), nn.Linear(3, 3))
    f = anyshape.compile(model, backend="aot_eager")
    same(f, model)
    child = model[0].inner.register_forward_hook(lambda module, args, out: out + 100)
    same(f, model)
    before = model[1].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    same(f, model)
    child.remove()
    same(f, model)
    before.remove()
    same(f, model)
    assert f.fallbacks == {}


def test_a_hook_of_the_module_itself_runs_in_each_call() -> None:
    model, seen = Scaled(), []
    f = anyshape.compile(model, backend="aot_eager")
    same(f, model, 4)
    handle = model.register_forward_hook(lambda *_: seen.append(1))
    f(torch.randn(5, 3))
    assert seen == [1]
    handle.remove()
    f(torch.randn(5, 3))
    assert seen == [1]


def test_a_hook_comes_and_goes_while_eight_threads_call() -> None:
    model = Scaled()
    f = anyshape.compile(model, backend="aot_eager")
    wrong: list[Any] = []

    def call() -> None:
        for n in (3, 1, 8, 2):
            x = torch.randn(n, 3)
            plain = (model.inner.weight @ x.mT).mT + model.inner.bias
            allowed = [torch.relu(plain), torch.relu(plain + 100)]
            got = f(x)
            wrong.extend([] if any(torch.allclose(got, a, atol=1e-4) for a in allowed) else [n])

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        model.inner.register_forward_hook(lambda module, args, out: out + 100).remove()
    for thread in threads:
        thread.join()
    assert wrong == []
    same(f, model)


class Named(nn.Module):
    word = ""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * len(self.word)


@pytest.mark.parametrize("outside", [True, False])
def test_hooks_run_once_around_a_call_that_runs_eagerly(outside: bool) -> None:
    model, seen = Named(), []
    f = anyshape.compile(model, backend="eager", recompile_limit=1)
    f(torch.ones(3))
    hooked = f if outside else model
    hooked.register_forward_hook(lambda module, args, out: (seen.append("after"), out + 100)[1])
    hooked.register_forward_pre_hook(lambda module, args: (seen.append("before"), (args[0] + 10,))[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", anyshape.FallbackWarning)
        for n in range(1, 4):
            model.word = "a" * n
            assert f(torch.ones(2)).tolist() == [11.0 * n + 100] * 2
    assert seen == ["before", "after"] * 3
    assert sum(n for reason, n in f.fallbacks.items() if "word" in reason) == 3, f.fallbacks


# -- programs that multiply for another reason than sizes --------------------------------------------------------


def test_a_float_attribute_that_changes_is_an_input() -> None:
    model = Scaled()
    f = anyshape.compile(model, backend="aot_eager")
    for i in range(20):
        model.temperature = 1 + i / 10
        same(f, model, 2, i)
    assert (len(f.programs), f.fallbacks) == (2, {})


def test_a_counter_is_limited_and_said_once() -> None:
    model = Counting()
    f, eager = anyshape.compile(model, backend="aot_eager"), copy.deepcopy(model)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        same(f, eager, *range(30))
    limit = torch._dynamo.config.recompile_limit
    assert len(f.programs) == limit
    ((reason, count),) = f.fallbacks.items()
    assert count == 30 - limit and "self.steps == 0" in reason and f"recompile_limit ({limit})" in reason
    assert len([w for w in seen if issubclass(w.category, anyshape.FallbackWarning)]) == 1
    assert {p.behavior for p in f.programs} == {f"self.steps == {i}" for i in range(limit)}
    assert "self.steps == 3" in str(anyshape.explain(f))


def test_the_limit_is_torchs_or_the_calls_own() -> None:
    with torch._dynamo.config.patch(recompile_limit=3):
        f = anyshape.compile(lambda x, name: x + len(name), backend="eager")
        g = anyshape.compile(lambda x, name: x - len(name), backend="eager", recompile_limit=5)
        for i in range(12):
            f(torch.ones(i), f"step{i}")
            g(torch.ones(i), f"step{i}")
    assert (len(f.programs), sum(f.fallbacks.values())) == (3, 9)
    assert (len(g.programs), sum(g.fallbacks.values())) == (5, 7)


def test_each_reason_is_counted_on_its_own() -> None:
    f = anyshape.compile(lambda x, name: x + len(name), backend="eager", recompile_limit=3)
    for dtype in (torch.float32, torch.float64, torch.int64):
        for name in ("a", "b"):
            for n in (3, 0, 1):
                f(torch.ones(n, dtype=dtype), name)
    assert (len(f.programs), f.fallbacks) == (6, {})


def test_at_the_limit_fullgraph_is_an_error_as_in_torch() -> None:
    f = anyshape.compile(lambda x, name: x + len(name), backend="eager", recompile_limit=2, fullgraph=True)
    for name in ("a", "b"):
        f(torch.ones(3), name)
    with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit, match="name == "):
        f(torch.ones(3), "c")


# -- copies ------------------------------------------------------------------------------------------------------


def test_a_deep_copy_compiles_anew() -> None:
    model = Scaled()
    f = anyshape.compile(model, backend="aot_eager")
    same(f, model)
    twin = copy.deepcopy(f)
    assert type(twin) is type(f) and twin.programs == ()
    with torch.no_grad():
        twin.inner.weight.add_(1)
    same(twin, twin._orig_mod)
    same(f, model)
    assert len(twin.programs) == 1 and not torch.equal(twin.inner.weight, f.inner.weight)


def test_a_deep_copy_keeps_shared_modules_shared_and_hooks() -> None:
    f = anyshape.compile(Scaled(), backend="aot_eager")
    f.register_forward_hook(lambda module, args, out: out + 100)
    one, two = copy.deepcopy(nn.ModuleList([f, f]))
    assert one is two
    x = torch.randn(2, 3)
    assert torch.equal(one(x), one._orig_mod(x) + 100)


def test_a_saved_module_is_compiled_where_it_is_loaded() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    f = anyshape.compile(model, backend="aot_eager", dynamic=True)
    same(f, model)
    file = io.BytesIO()
    torch.save(nn.Sequential(f), file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    same(loaded, model)
    assert len(loaded[0].programs) == 1
    same(pickle.loads(pickle.dumps(f)), model)


def test_an_averaged_model_of_a_compiled_one() -> None:
    model = Scaled()
    averaged = torch.optim.swa_utils.AveragedModel(anyshape.compile(model, backend="aot_eager"))
    averaged.update_parameters(model)
    same(averaged, model)


# -- the arguments of torch.compile ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [{"backend": None, "disable": True}, {"dynamic": True}, {"name": "region"}, {"isolate_recompiles": True}],
    ids=str,
)
def test_arguments_of_torch_compile(given: dict[str, Any]) -> None:
    fn = lambda x: x.relu() + 1
    same(anyshape.compile(**{"model": fn, "backend": "eager", **given}), fn)
    same(anyshape.compile(**{"backend": "eager", **given})(fn), fn)


def test_dynamic_false_is_static() -> None:
    graphs = Counted()
    f = anyshape.compile(lambda x, n: x * n, backend=graphs, dynamic=False)
    for n in (4, 5, 4, 6):
        assert torch.equal(f(torch.ones(n), n), torch.ones(n) * n)
    assert graphs.graphs == len(f.programs) == 3


def test_a_filter_of_guards_leaves_sizes_to_anyshape() -> None:
    given = {"guard_filter_fn": lambda guards: [False for _ in guards]}
    fn = lambda x: x * 2 if x.shape[0] > 3 else x + 1
    f = anyshape.compile(fn, backend="eager", options=given)
    same(f, fn)
    assert len(f.programs) == 2 and "guard_filter_fn" in given


def test_keyword_arguments_named_self() -> None:
    f = anyshape.compile(lambda **kw: torch._foreach_add(**kw), backend="eager")
    assert torch.equal(f(self=[torch.ones(2)], other=[torch.ones(2)])[0], torch.full((2,), 2.0))


def test_in_place() -> None:
    model, plain = Scaled(), Scaled()
    plain.load_state_dict(model.state_dict())
    assert anyshape.compile(model, backend="aot_eager", in_place=True) is model
    same(model, plain)
    assert "1 program" in str(anyshape.explain(model))
    same(copy.deepcopy(model), plain)  # as in torch: the copy is not compiled
    with pytest.raises(anyshape.Error, match="modules"):
        anyshape.compile(lambda x: x, in_place=True)


# -- compiled again, disabled, nested ----------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda: lambda x: x + 1, Scaled], ids=["function", "module"])
def test_compiled_again_with_another_backend(make: Callable[[], Any]) -> None:
    graphs, fn = Counted(), make()
    first = anyshape.compile(fn, backend="eager")
    same(anyshape.compile(first, backend=graphs), fn)
    assert graphs.graphs == 1 and first.programs == () and anyshape.compile(first) is first


def test_disabled_after_it_was_compiled() -> None:
    graphs = Counted()
    f = anyshape.compile(lambda x: x + 2, backend=graphs)
    assert torch.equal(torch.compiler.disable(f)(torch.ones(2)), torch.full((2,), 3.0))
    assert graphs.graphs == 0


def test_compiled_inside_what_is_compiled() -> None:
    def outer(x: torch.Tensor) -> torch.Tensor:
        return anyshape.compile(torch.sin, backend="eager")(x) + anyshape.compile(backend="eager")(torch.cos)(x)

    same(anyshape.compile(outer, backend="eager", fullgraph=True), lambda x: x.sin() + x.cos())


# -- layers of one class -----------------------------------------------------------------------------------------


def test_layers_of_one_class_share_programs() -> None:
    graphs = Counted()
    plain = [Scaled() for _ in range(10)]
    layers = nn.Sequential(*(anyshape.compile(m, backend=graphs) for m in plain))
    same(layers, nn.Sequential(*plain), 2, 3, 5, 1, 0)
    assert graphs.graphs == 2  # the first one's input requires no gradient
    assert {len(layer.programs) for layer in layers} == {1}


@pytest.mark.parametrize("named", [False, True])
def test_layers_that_are_compiled_in_place_share_programs(named: bool) -> None:
    graphs = Counted()
    plain = [Scaled() for _ in range(10)]
    layers = copy.deepcopy(plain)
    for layer in layers:
        if named:
            layer.compile(backend="anyshape", options={"backend": graphs})
        else:
            anyshape.compile(layer, backend=graphs, in_place=True)
    same(nn.Sequential(*layers), nn.Sequential(*plain), 2, 3, 5, 1, 0)
    assert graphs.graphs <= 2
    last: Any = layers[-1]._compiled_call_impl
    if not named:
        assert [p.calls > 0 for p in last.programs] == [True] and last.fallbacks == {}


def test_modules_of_one_class_that_are_compiled_in_place_show_their_own_programs() -> None:
    wide, narrow = (nn.Sequential(nn.Linear(3, 5)), nn.Sequential(nn.Tanh()))
    calls: list[Any] = []
    for module in (wide, narrow):
        anyshape.compile(module, backend="eager", in_place=True)
        calls.append(module._compiled_call_impl)
    wide(torch.ones(2, 3))
    assert [len(call.programs) for call in calls] == [1, 0]
    narrow(torch.ones(2, 3))
    assert [len(call.programs) for call in calls] == [1, 1]


def test_modules_of_one_class_show_their_own_programs() -> None:
    wide, narrow = nn.Sequential(nn.Linear(3, 5), nn.ReLU()), nn.Sequential(nn.Tanh())
    f, g = anyshape.compile(wide, backend="eager"), anyshape.compile(narrow, backend="eager")
    same(f, wide)
    assert (len(f.programs), len(g.programs)) == (1, 0)
    same(g, narrow)
    assert (len(f.programs), len(g.programs)) == (1, 1)
    assert f.programs[0].calls == g.programs[0].calls == 4


def test_isolated_layers_share_nothing() -> None:
    graphs = Counted()
    kept = [anyshape.compile(Scaled(), backend=graphs, isolate_recompiles=True) for _ in range(3)]
    for layer in kept:
        layer(torch.ones(2, 3))
    assert graphs.graphs == 3


# -- what was asked for ------------------------------------------------------------------------------------------


def test_a_graph_break_that_was_asked_to_be_an_error() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        with torch._dynamo.error_on_graph_break(True):
            torch._dynamo.graph_break()
        return x + 2

    with pytest.raises(torch._dynamo.exc.Unsupported):
        anyshape.compile(f, backend="eager")(torch.ones(3))


def test_a_recompile_that_was_asked_to_be_an_error() -> None:
    f = anyshape.compile(lambda x, name: x + len(name), backend="eager")
    f(torch.ones(3), "a")
    with torch._dynamo.config.patch(error_on_recompile=True):
        f(torch.ones(5), "a")
        with pytest.raises(torch._dynamo.exc.RecompileError):
            f(torch.ones(3), "b")


@pytest.mark.skipif(not hasattr(torch._dynamo.config, "side_effect_replay_policy"), reason="torch 2.12 on")
def test_a_side_effect_that_was_asked_to_be_an_error() -> None:
    def f(x: torch.Tensor, out: list[Any]) -> torch.Tensor:
        out.append(x + 1)
        return x * 2

    with (
        torch._dynamo.config.patch(replay_side_effects=False, side_effect_replay_policy="error"),
        pytest.raises(Exception, match="side effects"),
    ):
        anyshape.compile(f, backend="eager")(torch.ones(3), [])


def test_disabled_but_for_what_it_calls() -> None:
    @torch.compiler.disable(recursive=False)
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x - 1 if torch.compiler.is_compiling() else x + 3

    f = anyshape.compile(lambda x: inner(x * 1) * 1, backend="eager")
    assert torch.equal(f(torch.ones(2)), torch.full((2,), 4.0))


def test_what_is_statically_known_is_what_eager_knows() -> None:
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    fn = lambda x: x + 3 if statically_known_true(x.size(0) >= 2) else x + 4
    f = anyshape.compile(fn, backend="eager")
    same(f, fn)
    assert len(f.programs) == 2


def test_a_container_that_contains_itself() -> None:
    root: dict[str, Any] = {"a": 1}
    root["me"] = root
    f = anyshape.compile(lambda x, d: x + d["a"], backend="eager")
    assert torch.equal(f(torch.ones(2), root), torch.full((2,), 2.0)) and f.fallbacks == {}


def test_lazy_modules_are_compiled_from_the_first_call() -> None:
    graphs = Counted()
    model = nn.Sequential(nn.LazyLinear(8), nn.ReLU())
    f = anyshape.compile(model, backend=graphs, fullgraph=True)
    same(f, model, 10, 1, 0, 4)
    assert graphs.graphs == len(f.programs) == 1 and f.fallbacks == {}


# -- nothing unsaid ----------------------------------------------------------------------------------------------


def test_a_call_of_which_nothing_is_compiled_is_counted() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    handle = model[0].register_full_backward_hook(lambda *_: None)
    f = anyshape.compile(model, backend="aot_eager")
    for n in (4, 1):
        f(torch.randn(n, 3, requires_grad=True)).sum().backward()
    assert f.programs == () and list(f.fallbacks.values()) == [2]
    handle.remove()
    f(torch.randn(4, 3))
    assert len(f.programs) == 1 and sum(f.fallbacks.values()) == 2


def test_a_call_that_begins_with_a_graph_break_is_not_counted_where_the_rest_is_compiled() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x + 1

    f = anyshape.compile(fn, backend="eager")
    same(f, fn)
    assert f.fallbacks == {} and f.programs


def test_a_function_without_tensors_is_counted() -> None:
    f = anyshape.compile(lambda a: a, backend="eager")
    for _ in range(3):
        assert f("text") == "text"
    assert sum(f.fallbacks.values()) + sum(p.calls for p in f.programs) == 3


class Generating(Scaled):
    def generate(self, x: torch.Tensor) -> torch.Tensor:
        return self(self(x))


def test_a_method_that_calls_the_module_inside_is_said() -> None:
    f = anyshape.compile(Generating(), backend="aot_eager")
    f.generate(torch.randn(2, 3))
    ((reason, count),) = f.fallbacks.items()
    assert count == 2 and reason.startswith("generate() ")
    model = anyshape.compile(Generating(), backend="aot_eager", in_place=True)
    model.generate(torch.randn(2, 3))
    assert "2 calls" in str(anyshape.explain(model))


# -- no noise ----------------------------------------------------------------------------------------------------


def test_no_warning_is_about_sizes_that_nobody_passed() -> None:
    net = nn.Linear(3, 1)
    fn = lambda x, y: nn.functional.mse_loss(net(x), y)
    f = anyshape.compile(fn, backend="aot_eager")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for n in (5, 3, 1):
            x, y = torch.randn(n, 3), torch.randn(n, 1)
            assert torch.allclose(f(x, y), fn(x, y))
    assert [str(w.message) for w in seen if "target size" in str(w.message)] == []


# -- what torch compiles by its own switches ---------------------------------------------------------------------


@torch._dynamo.config.patch(graph_break_on_nn_param_ctor=False)
def test_a_parameter_made_inside() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.Parameter(torch.ones(3)) + x

    f = anyshape.compile(fn, backend="aot_eager", fullgraph=True)
    same(f, fn, 4, 0, 1, 7)
    assert (f.fallbacks, len(f.programs)) == ({}, 1)
    assert f(torch.ones(3)).requires_grad


@pytest.mark.skipif(not hasattr(torch._dynamo.config, "trace_autograd_ops"), reason="torch 2.11 has no such switch")
def test_a_backward_pass_inside() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = (x * 2).requires_grad_()
        (y**2).sum().backward()
        assert y.grad is not None
        return y.grad + 1

    with torch._dynamo.config.patch(trace_autograd_ops=True):
        f = anyshape.compile(fn, backend="aot_eager", fullgraph=True)
        same(f, fn, 4, 1, 7)
    assert f.fallbacks == {}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", Counted()])
def test_global_hooks_of_modules_run_for_modules_alone(backend: Any) -> None:
    seen: list[str] = []
    f = anyshape.compile(Scaled(), backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, that they run once more for the compiled module
        handle = nn.modules.module.register_module_forward_pre_hook(lambda m, args: seen.append(type(m).__name__))
        try:
            for n in (3, 4):
                seen.clear()
                f(torch.randn(n, 3))
                assert seen[1:] == ["Scaled", "Linear"]
        finally:
            handle.remove()


def test_what_may_not_be_traced_is_an_error_as_in_torch() -> None:
    def forced(x: torch.Tensor) -> torch.Tensor:
        with torch.compiler.set_stance("force_eager"):
            return x + 1

    forbidden = torch._dynamo.forbid_in_graph(lambda x: x + 1)
    for fn in (forced, lambda x: forbidden(x) * 2):
        with pytest.raises(AssertionError, match="Attempt to trace forbidden callable"):
            anyshape.compile(fn, backend="eager")(torch.ones(3))


@torch.library.custom_op("anyshape_tests::scale_", mutates_args={"x"})
def scale_(x: torch.Tensor, by: float) -> None:
    x.mul_(by)


class TimesLength(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, n: int) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.n = n
        return x.sin() * n

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        return grad * x.cos() * ctx.n, None


def scaled(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    scale_(y, 2.0)
    return y + 1


@pytest.mark.parametrize("sizes", [(3, 7, 1, 0, 2), (1, 0, 5)])
@pytest.mark.parametrize("fn", [scaled, lambda x: TimesLength.apply(x, x.shape[0]) + 1])
def test_operators_of_the_user_are_one_program(fn: Any, sizes: tuple[int, ...]) -> None:
    f = anyshape.compile(fn, backend="aot_eager")
    for n in sizes:
        x = torch.randn(n, 3, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        found, expected = f(x), fn(y)
        found.sum().backward()
        expected.sum().backward()
        assert torch.equal(found, expected) and torch.equal(x.grad, y.grad)
    assert len(f.programs) == 1 and not f.fallbacks


@pytest.mark.slow  # Inductor
def test_hooks_of_gradients_with_compiled_autograd() -> None:
    from torch._dynamo import compiled_autograd

    class Hooked(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            y.register_hook(lambda grad: grad + 3)
            return y * 3

    def compiler(graph: Any) -> Any:
        return torch.compile(graph, backend="eager", dynamic=True)

    f = anyshape.compile(Hooked(), fullgraph=True)
    for n in (4, 5):
        x = torch.ones(n, requires_grad=True)
        with compiled_autograd._enable(compiler):
            f(x).backward(torch.ones(n))
        assert x.grad is not None and x.grad.tolist() == [12.0] * n
    assert len(f.programs) == 1
