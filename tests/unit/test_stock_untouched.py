"""Stock `torch.compile` in the same process: before, beside and after anyshape, and after a compile that failed."""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch._dynamo
from whole_torch import Picture

import anyshape
from anyshape.testing import assert_any_shape

pytestmark = pytest.mark.filterwarnings("ignore:`torch.distributed.reduce_op`")  # warns when asked for its type


@pytest.fixture(autouse=True)
def settled() -> Iterator[None]:
    """Torch imports parts of itself on first use; have it done before a picture is taken."""
    torch.compile(lambda x: x.squeeze(0) + 1, backend="aot_eager", dynamic=True)(torch.ones(3, 2))
    anyshape.compile(lambda x: x.squeeze(0) + 1, backend="aot_eager")(torch.ones(3, 2))
    yield


def test_a_compile_leaves_no_patch() -> None:
    before = Picture()
    assert_any_shape(lambda x: torch.tanh(x).squeeze(0), lambda n: torch.randn(n, 3), backend="aot_eager")
    assert before.changed() == []


INSIDE = """
    import json, sys
    sys.path.insert(0, {tests!r})
    import torch, torch._dynamo
    import torch._inductor.compile_fx as compile_fx
    from whole_torch import Picture
    import anyshape
    from anyshape._torch.capture import capture_scope as capture
    from anyshape._torch.repairs import registry as repairs

    def trained(compile):
        torch._dynamo.reset()
        weight = torch.randn(3, 3, requires_grad=True)
        f = compile(lambda x: torch.tanh(x @ weight).squeeze(0).sum(), backend="inductor")
        for n in (5, 1):
            f(torch.randn(n, 3)).backward()

    trained(torch.compile)
    trained(anyshape.compile)
    scopes = ("capture", "compile", "inductor", "views", "count", "attempt")
    known = [one for one in repairs.declared() if one.scope in scopes and not one.by_itself]
    places = {{(id(p.found[0]), p.found[1]): p.text for one in known for p in one.held()}}
    tables = [p.found[0] for one in known for p in one.held() if isinstance(p.found[0], (dict, list))]
    # Settings are put back by torch; what was added to a table is dropped with all else that was.
    kept = [p.text for one in known for p in one.held() if repairs._is_config(p.found[0])]
    added = [p.text for one in known for p in one.held() if one.adds and repairs._own(*p.found) is repairs.MISSING]
    before_all = [(*p.found, repairs._own(*p.found)) for one in known for p in one.held() if p.text not in kept]
    left = {{}}

    def look(before):
        left.update({{(id(owner), key): text for text, owner, key in before.differences()}})
        left.update({{(id(o), k): repr(k) for o, k, stock in before_all if repairs._own(o, k) is not stock}})

    if {inside}:
        stock = compile_fx.compile_fx

        def inside(*args, **kwargs):
            look(before)
            return stock(*args, **kwargs)

        compile_fx.compile_fx = inside
        before = Picture(tables)
        trained(anyshape.compile)
    else:
        stock = repairs.put_back
        repairs.put_back = lambda *given: None
        before = Picture(tables)
        trained(anyshape.compile)
        look(before)
        repairs.put_back = stock
        for given in before_all:
            if repairs._own(*given[:2]) is not given[2]:
                stock(*given)
    assert before.changed() == [], before.changed()[:5]
    print(json.dumps(dict(
        declared=len(places),
        changed_only=sorted(left[k] for k in left.keys() - places.keys()),
        declared_only=sorted(places[k] for k in places.keys() - left.keys()),
        settings=kept,
        added=added,
    )))
"""

# Declared, and in this capture as stock has it: no module that does not change, settings that are the same in both.
AS_STOCK = {"torch._dynamo.variables.builder:GraphArg.reconstruct"}
TORCHS_OWN = ["torch.fx.graph_module._forward_from_src"]  # convert_frame.py replaces it while it captures
SETTINGS_AS_STOCK = ("specialize_int", "suppress_errors", "allow_empty_graphs", "enable_cpp_symbolic_shape_guards")


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "no undo"])
def test_what_is_changed_is_what_is_declared(inside: bool) -> None:
    """Inside a capture, and after one of which nothing is put back: over all of torch, in a process of its own."""
    code = textwrap.dedent(INSIDE).format(inside=inside, tests=str(pathlib.Path(__file__).parent))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["declared"] > 100
    assert found["changed_only"] in ([], TORCHS_OWN), "changed, and not declared"
    as_stock = AS_STOCK | {s for s in found["settings"] if not inside or s.endswith(SETTINGS_AS_STOCK)}
    as_stock |= set() if inside else set(found["added"])
    assert set(found["declared_only"]) - as_stock == set(), "declared, and not changed"


def test_a_setting_or_an_entry_that_stays_changed_is_seen() -> None:
    before = Picture()
    with torch._dynamo.config.patch(recompile_limit=77), torch._inductor.config.patch({"cpp.threads": 3}):
        assert before.changed() == ["torch._dynamo.config.recompile_limit", "torch._inductor.config.cpp.threads"]
    table = torch._inductor.lowering.lowerings
    name, stock = next(iter(table.items()))
    table[name] = len
    try:
        assert f"torch._inductor.lowering.lowerings[{name}]" in before.changed()
    finally:
        table[name] = stock
    assert before.changed() == []


def test_stock_has_its_own_recompile_limit() -> None:
    """Programs of anyshape do not use up that of a stock compilation of the same code."""
    fn = lambda x, name: x + len(name)
    ours = anyshape.compile(fn, backend="eager")
    graphs: list[Any] = []
    stock = torch.compile(fn, backend=lambda graph, inputs: (graphs.append(graph), graph)[1])
    with torch._dynamo.config.patch(recompile_limit=4):
        for i in range(4):
            ours(torch.ones(3), f"ours{i}")
        for i in range(4):
            stock(torch.ones(3), f"stock{i}")
    assert (len(ours.programs), len(graphs)) == (4, 4)


def broken(graph: Any, inputs: Any) -> Any:
    raise ValueError("a backend that fails")


def unsupported(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    return x + 1


@pytest.mark.parametrize(
    ("fn", "options"),
    [
        pytest.param(lambda x: x + 1, {"backend": broken}, id="backend"),
        pytest.param(unsupported, {"backend": "eager", "fullgraph": True}, id="fullgraph"),
        pytest.param(lambda x: x.view(7, 7), {"backend": "eager"}, id="eager raises"),
        pytest.param(lambda x: torch._check(x.shape[0] > 100), {"backend": "eager"}, id="check"),
    ],
)
def test_a_failed_compile_leaves_no_patch(fn: Any, options: dict[str, Any]) -> None:
    before = Picture()
    f = anyshape.compile(fn, **options)
    with pytest.raises(Exception):  # noqa: B017 - which one is not the point here
        f(torch.ones(4, 2))
    assert before.changed() == []
    with contextlib.suppress(Exception):
        f(torch.ones(5, 2))
    assert before.changed() == []


def test_an_interrupt_leaves_no_patch() -> None:
    def interrupted(graph: Any, inputs: Any) -> Any:
        raise KeyboardInterrupt

    before = Picture()
    with pytest.raises(KeyboardInterrupt):
        anyshape.compile(lambda x: x + 1, backend=interrupted)(torch.ones(4))
    assert before.changed() == []


def test_stock_compiles_inside_a_backend_of_ours() -> None:
    """A stock compile that runs between two of our captures has stock sizes."""
    ours = anyshape.compile(lambda x: x * 2, backend="eager")
    graphs: list[Any] = []

    def counting(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    stock = torch.compile(lambda x: x + 1, backend=counting, dynamic=True)
    for n in (4, 1, 0, 5):
        ours(torch.ones(n))
        stock(torch.ones(n))
    assert len(graphs) == 3 and len(ours.programs) == 1


PROBE = """
    import json, logging, sys
    import torch, torch._dynamo
    from torch._dynamo.utils import counters

    if {use}:
        import anyshape
        f = anyshape.compile(lambda x: x.squeeze(0).relu() if x.shape[0] > 2 else x * 2, backend="aot_eager")
        for n in (3, 1, 0, 5):
            f(torch.ones(n, 4))
        try:
            anyshape.compile(lambda x: x.view(7, 7), backend="aot_eager")(torch.ones(3))
        except RuntimeError:
            pass
        torch._dynamo.reset()
        counters.clear()

    lines = []
    class Keep(logging.Handler):
        def emit(self, record):
            lines.append(record.getMessage())
    torch._logging.set_logs(recompiles=True)
    log = logging.getLogger("torch._dynamo.guards.__recompiles")
    log.addHandler(Keep())
    log.propagate = False

    def model(x, y):
        if x.shape[0] > 4:
            return (x + y).relu(), x.squeeze(0)
        return x * y, x.reshape(-1)

    graphs, results, guards = [], [], []
    def backend(graph, inputs):
        graphs.append(str(graph.code))
        return graph
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list, optimize
    for dynamic in (None, True, False):
        torch._dynamo.reset()
        compiled = optimize(backend, dynamic=dynamic)(model)
        for n in (3, 6, 1, 0, 9, 6):
            results.append([t.tolist() for t in compiled(torch.ones(n, 4), torch.ones(n, 4) * 2)])
        # Before the next reset drops them: each way of compiling has guards of its own.
        guards.extend(str(e.guard_manager) for e in _debug_get_cache_entry_list(model.__code__))
    import re
    plain = lambda t: re.sub(r"0x[0-9a-f]+|\\b\\d{{9,}}\\b|___\\w+?_\\d+\\w*", "#", t)
    print(json.dumps(dict(
        graphs=graphs, results=results, recompiles=[plain(l) for l in lines], guards=[plain(g) for g in guards],
        stats=dict(counters["stats"]), frames=dict(counters["frames"]), breaks=dict(counters["graph_break"]),
    )))
"""


def probe(*, use: bool) -> dict[str, Any]:
    """What stock torch does in a process of its own, with or without anyshape used before."""
    code = textwrap.dedent(PROBE).format(use=use)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_counts_guards_and_results_of_stock_are_the_same_after_anyshape() -> None:
    without, after = probe(use=False), probe(use=True)
    assert without["graphs"] and without["recompiles"] and len(without["guards"]) == len(without["graphs"])
    assert any("size()[0]" in guards for guards in without["guards"])
    for what in without:
        assert after[what] == without[what], what
