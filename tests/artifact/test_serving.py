"""Artifacts of real functions and modules: made, saved, loaded and served."""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import corruptions
import pytest
import served_callables as callables
import torch
from torch._inductor.cpp_builder import CppBuilder
from torch._inductor.graph import GraphLowering

import anyshape
from anyshape._torch.bundle import frame_bytes
from anyshape._torch.bundle.code_bytes import Bundle
from anyshape.ahead import stored
from anyshape.artifact import storage
from anyshape.errors import ArtifactError, NewBehaviorError

KEY = b"a secret of thirty-two bytes ..."
HERE = pathlib.Path(__file__).parent


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield


class Idle:
    """Nothing is captured, lowered or built inside."""

    def __enter__(self) -> None:
        self._patches = [
            mock.patch.object(GraphLowering, "__init__", side_effect=AssertionError("a graph was lowered")),
            mock.patch.object(CppBuilder, "build", side_effect=AssertionError("C++ was compiled")),
        ]
        for patch in self._patches:
            patch.start()
        self._frames = dict(torch._dynamo.utils.counters["frames"])

    def __exit__(self, *error: Any) -> None:
        for patch in self._patches:
            patch.stop()
        assert dict(torch._dynamo.utils.counters["frames"]) == self._frames, "a frame was captured"


def inputs(n: int, m: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(n, m), torch.randn(m, 7)


@pytest.fixture(scope="module")
def artifact() -> anyshape.Artifact:
    return anyshape.precompile(callables.branching, inputs(5), calls=[inputs(12)])


@pytest.fixture(scope="module")
def inference() -> anyshape.Artifact:
    net = callables.net().eval()
    with torch.no_grad():
        return anyshape.precompile(
            net,
            (torch.randn(3, 5, 8),),
            calls=[(torch.randn(1, 5, 8),), (torch.randn(2, 20, 8),)],
            shapes={"x": "batch seq 8"},
            where=["seq <= 1000"],
            specialize=["batch == 1", "seq == 20"],
            weights="embed",
        )


def test_one_file_serves_every_size(artifact: anyshape.Artifact, tmp_path: pathlib.Path) -> None:
    assert [p.behavior for p in artifact.programs] == ["x.shape[0] <= 8", "x.shape[0] > 8"]
    artifact.save(tmp_path / "f.any", key=KEY)
    for live in (None, callables.branching):
        with Idle():
            f = anyshape.load(tmp_path / "f.any", live, key=KEY, name="branching")
            for n, m in ((5, 6), (1, 6), (0, 3), (9, 1), (30, 2), (8, 0), (2, 2)):
                for k in (3, 4):
                    x, y = inputs(n, m)
                    torch.testing.assert_close(f(x, y, k=k), callables.branching(x, y, k))
                    torch.testing.assert_close(f(x, y=y, k=k), callables.branching(x, y, k))
        assert [p.calls > 0 for p in f.programs] == [True, True]


def test_a_call_outside_is_refused_with_the_nearest_program(artifact: anyshape.Artifact) -> None:
    f = anyshape.load(artifact, callables.branching)
    x, y = inputs(4)
    with pytest.raises(NewBehaviorError, match=r"x has dtype torch.float64, and it was made for torch.float32"):
        f(x.double(), y.double())
    with pytest.raises(NewBehaviorError, match="requires_grad True"):
        f(x.requires_grad_(), y)
    with pytest.raises(NewBehaviorError, match="grad mode is False"), torch.no_grad():
        f(*inputs(4))
    with pytest.raises(NewBehaviorError, match="3 dims"):
        f(torch.randn(2, 3, 4), y)
    with pytest.raises(NewBehaviorError, match="a str, and it was made for a"):
        f("text", y)
    one = anyshape.load(anyshape.precompile(callables.branching, inputs(5)), callables.branching)
    with pytest.raises(NewBehaviorError) as caught:
        one(*inputs(50))
    assert "the nearest program is for x.shape[0] <= 8; it needs x.shape[0] <= 8" in str(caught.value)
    assert "served_callables.py:" in str(caught.value)


def test_eager_where_no_program_serves(artifact: anyshape.Artifact) -> None:
    f = anyshape.load(artifact, callables.branching, on_new_behavior="eager")
    x, y = (t.double() for t in inputs(4))
    with Idle():
        torch.testing.assert_close(f(x, y), callables.branching(x, y))
    assert sum(f.fallbacks.values()) == 1
    with pytest.raises(ArtifactError, match="AS055"):
        anyshape.load(artifact, on_new_behavior="eager")


def test_source_that_changed_is_noticed(artifact: anyshape.Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArtifactError, match="AS055") as caught:
        anyshape.load(artifact, callables.picks)
    assert "function branching is not in both" in str(caught.value)
    monkeypatch.setattr(callables, "FACTOR", 4)
    with pytest.raises(ArtifactError, match="the global FACTOR is not the one that it was made from"):
        anyshape.load(artifact, callables.branching)


def test_a_module_with_its_live_weights(inference: anyshape.Artifact) -> None:
    net = callables.net().eval()
    with Idle(), torch.no_grad():
        f = anyshape.load(inference, net)
        for batch, seq in ((3, 5), (1, 5), (2, 20), (0, 4), (7, 1), (1, 1), (4, 400)):
            x = torch.randn(batch, seq, 8)
            torch.testing.assert_close(f(x), net(x))
        net.blocks[0].up.weight.mul_(2)
        torch.testing.assert_close(f(x), net(x))
        net.load_state_dict(callables.net().state_dict())
        torch.testing.assert_close(f(x), net(x))
    assert sum(v.calls for p in f.programs for v in p.variants) == 2
    assert list(f.state_dict()) == list(net.state_dict()) and f.scale == 0.5
    with pytest.raises(anyshape.InvariantError), torch.no_grad():
        f(torch.randn(2, 1001, 8))
    net.scale = 0.25
    with pytest.raises(ArtifactError, match="the settings of its modules"):
        anyshape.load(inference, net)


def test_weights_that_travel_inside(inference: anyshape.Artifact, tmp_path: pathlib.Path) -> None:
    inference.save(tmp_path / "net.any", key=KEY)
    with Idle(), torch.no_grad():
        f = anyshape.load(tmp_path / "net.any", key=KEY, name="Net")
        for shape in ((3, 5, 8), (1, 5, 8), (2, 20, 8)):
            x = torch.randn(shape)
            torch.testing.assert_close(f(x), callables.net().eval()(x))
    assert len(list(f.parameters())) == len(list(callables.net().parameters()))


def test_training(tmp_path: pathlib.Path) -> None:
    net, twin = callables.net(), callables.net()
    artifact = anyshape.precompile(net, (torch.randn(3, 5, 8),))
    artifact.save(tmp_path / "net.any")
    with Idle():
        f = anyshape.load(tmp_path / "net.any", net, trust=True)
        for batch, seq in ((3, 5), (1, 4), (6, 2)):
            x = torch.randn(batch, seq, 8)
            for model, call in ((net, f), (twin, twin)):
                model.zero_grad()
                call(x).square().sum().backward()
            for a, b in zip(net.parameters(), twin.parameters(), strict=True):
                torch.testing.assert_close(a.grad, b.grad)
    with pytest.raises(NewBehaviorError, match="training is False"):
        f.eval()(x)


def test_mutation_and_views() -> None:
    x, out = torch.randn(5), torch.zeros(5)
    f = anyshape.load(anyshape.precompile(callables.writes, (x, torch.zeros(5))), callables.writes)
    with Idle():
        for n in (5, 9, 2, 1):
            x, out, want = torch.randn(n), torch.zeros(n), torch.zeros(n)
            result, expected = f(x, out), callables.writes(x, want)
            torch.testing.assert_close(out, want)
            torch.testing.assert_close(result, expected)
            assert result._base is not None or result.data_ptr() == out[1:].data_ptr()
        memory = torch.zeros(6)
        with pytest.raises(NewBehaviorError, match="share memory"):
            f(memory[1:], memory[:-1])


def test_errors_are_eagers() -> None:
    x, i = torch.randn(5), torch.tensor([0, 3])
    f = anyshape.load(anyshape.precompile(callables.picks, (x, i)), callables.picks)
    with pytest.raises(IndexError):
        f(x, torch.tensor([0, 99]))


def test_graph_breaks_are_refused() -> None:
    with pytest.raises(ArtifactError, match="AS056"):
        anyshape.precompile(callables.breaks, (torch.randn(3),))
    with pytest.raises(ArtifactError, match="neither a tensor nor a plain value"):
        anyshape.precompile(callables.picks, (torch.randn(3), object()))


def test_cover_finds_the_sizes_of_every_behaviour() -> None:
    artifact = anyshape.precompile(
        callables.branching,
        inputs(5),
        shapes={"x": "n m", "y": "m 7"},
        where=["1 <= n <= 64", "1 <= m <= 32"],
        cover=True,
    )
    assert sorted(p.behavior for p in artifact.programs) == ["x.shape[0] <= 8", "x.shape[0] > 8"]
    with Idle():
        f = anyshape.load(artifact, callables.branching)
        for n in (1, 8, 9, 64):
            given = inputs(n)
            torch.testing.assert_close(f(*given), callables.branching(*given))


def test_modules_of_torch_itself() -> None:
    linear = torch.nn.Linear(4, 3)
    with torch.no_grad():
        f = anyshape.load(anyshape.precompile(linear, (torch.randn(5, 4),)), linear)
        for n in (5, 1, 0, 9):
            x = torch.randn(n, 4)
            torch.testing.assert_close(f(x), linear(x))


def refused(artifact: anyshape.Artifact, monkeypatch: pytest.MonkeyPatch, *, count: int) -> None:
    """Spoilt copies of a real file, each refused with a code before anything that could run is touched."""

    def must_not_run(*args: Any, **kwargs: Any) -> None:
        pytest.fail("something of a spoilt file was about to run")

    for owner, name in ((stored.Stored, "read"), (frame_bytes.Frame, "function"), (Bundle, "load")):
        monkeypatch.setattr(owner, name, must_not_run)
    data = artifact.pack(key=KEY)
    codes = set()
    for i, (how, spoilt) in enumerate(corruptions.corruptions(data, KEY, count=count, seed=3)):
        url = f"memory://spoilt-{i}.any"
        storage.write(url, spoilt)
        with pytest.raises(ArtifactError) as caught:
            anyshape.load(url, callables.branching, key=KEY)
        assert caught.value.code in ("AS050", "AS051", "AS052", "AS053", "AS054"), how
        codes.add(caught.value.code)
    assert len(codes) == 5


def test_corruptions_of_a_real_file(artifact: anyshape.Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(artifact, monkeypatch, count=66)


@pytest.mark.slow
def test_a_thousand_corruptions_of_a_real_file(artifact: anyshape.Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(artifact, monkeypatch, count=1000)


CHILD = """
import json, sys
sys.path.insert(0, sys.argv[1])
import test_serving
made = test_serving.again()
print(json.dumps({"key": made.key, "graphs": made.graphs}))
"""
SERVER = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch, served_callables as callables, anyshape
from torch._dynamo import convert_frame
from torch._inductor.cpp_builder import CppBuilder
counts = dict.fromkeys(("frames", "built"), 0)
def counted(owner, name, what):
    stock = getattr(owner, name)
    def count(*args, **kwargs):
        counts[what] += 1
        return stock(*args, **kwargs)
    setattr(owner, name, count)
counted(convert_frame, "_compile", "frames")
counted(CppBuilder, "build", "built")
net = callables.net().eval()
with torch.no_grad():
    f = anyshape.load(sys.argv[2], net, key=open(sys.argv[3], "rb").read())
    for shape in ((3, 5, 8), (1, 5, 8), (2, 20, 8), (0, 3, 8)):
        x = torch.randn(shape)
        torch.testing.assert_close(f(x), net(x))
# What lowers graphs takes longer to import than all the rest, and nothing is lowered.
print(json.dumps({**counts, "lowerings": "torch._inductor.lowering" in sys.modules}))
"""


LIGHT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch, served_callables as callables, anyshape
net = callables.net().eval()
with torch.no_grad():
    f = anyshape.load(sys.argv[2], net, key=open(sys.argv[3], "rb").read())
    for shape in ((3, 5, 8), (1, 5, 8), (2, 20, 8), (4, 7, 8), (6, 31, 8)):  # the last two nobody has called before
        x = torch.randn(shape)
        assert torch.allclose(f(x), net(x), atol=1e-5)
print(json.dumps([m for m in ("torch._dynamo", "torch._inductor", "sympy") if m in sys.modules]))
"""


def child(code: str, *arguments: str, **environment: str) -> Any:
    command = [sys.executable, "-c", code, str(HERE), *arguments]
    source = str(pathlib.Path(anyshape.__file__).parents[1])
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    ran = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path, **environment}, capture_output=True, text=True, timeout=240
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.splitlines()[-1])


RACE = """
import collections, json, os, sys, threading
sys.path.insert(0, sys.argv[1])
import torch, served_callables as callables, anyshape, anyshape.ahead.loading
key = open(sys.argv[3], "rb").read()
torch.set_num_threads(1)
sys.setswitchinterval(1e-5)
def child():
    wrong, barrier = [], threading.Barrier(8)
    def one():
        try:
            f = anyshape.load(sys.argv[2], callables.branching, key=key)
            x, y = torch.randn(12, 6), torch.randn(6, 7)
            barrier.wait()
            torch.testing.assert_close(f(x, y), callables.branching(x, y))
        except BaseException as error:
            wrong.append(repr(error))
    threads = [threading.Thread(target=one) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    sys.stderr.write("\\n".join(wrong))
    sys.stderr.flush()
    os._exit(len(wrong) > 0)
ends = collections.Counter()
for _ in range(int(sys.argv[4])):  # each a process of its own: what is mapped once is not mapped again
    pid = os.fork()
    if not pid:
        child()
    ends[os.waitpid(pid, 0)[1]] += 1
print(json.dumps(ends))
"""


def race_for_kernels(artifact: anyshape.Artifact, tmp_path: pathlib.Path, processes: int) -> None:
    artifact.save(tmp_path / "f.any", key=KEY)
    (tmp_path / "key").write_bytes(KEY)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    ends = child(RACE, *(str(tmp_path / n) for n in ("f.any", "key")), str(processes), TMPDIR=str(temporary))
    assert ends == {"0": processes}
    assert not list(temporary.rglob("*.so"))


def test_eight_threads_map_one_kernel(artifact: anyshape.Artifact, tmp_path: pathlib.Path) -> None:
    race_for_kernels(artifact, tmp_path, 5)


@pytest.mark.slow
def test_a_thousand_processes_of_eight_threads_map_one_kernel(
    artifact: anyshape.Artifact, tmp_path: pathlib.Path
) -> None:
    for _ in range(10):
        race_for_kernels(artifact, tmp_path, 100)
        (tmp_path / "temporary").rename(tmp_path / f"temporary-{_}")


def test_a_fresh_process_captures_and_compiles_nothing(inference: anyshape.Artifact, tmp_path: pathlib.Path) -> None:
    inference.save(tmp_path / "net.any", key=KEY)
    (tmp_path / "key").write_bytes(KEY)
    # A cache of torch's own that is empty: what is there came out of the file.
    empty = str(tmp_path / "cache")
    counts = child(SERVER, str(tmp_path / "net.any"), str(tmp_path / "key"), TORCHINDUCTOR_CACHE_DIR=empty)
    assert counts == {"frames": 0, "built": 0, "lowerings": False}


def test_serving_imports_no_compiler(inference: anyshape.Artifact, tmp_path: pathlib.Path) -> None:
    inference.save(tmp_path / "net.any", key=KEY)
    (tmp_path / "key").write_bytes(KEY)
    assert child(LIGHT, str(tmp_path / "net.any"), str(tmp_path / "key")) == []


def summed(x: torch.Tensor) -> torch.Tensor:
    return (x @ x.T).cumsum(0) * 2


def constant(x: torch.Tensor) -> torch.Tensor:
    return x + torch.tensor([1.5, 2.5, 3.5])


@pytest.mark.parametrize(
    ("fn", "plain"),
    [
        (summed, True),
        (constant, True),
        (lambda x: x.sort(), True),
        (lambda x: x.add_(1), False),
    ],
    ids=["computes", "constant", "sorts", "writes"],
)
def test_what_only_computes_is_plain(fn: Any, plain: bool) -> None:
    """And is as right as what is not."""
    made = anyshape.precompile(fn, (torch.randn(5, 3),), calls=[(torch.randn(1, 3),)])
    assert {p.general.is_plain for p in made._stored} == {plain}
    f = anyshape.load(made, fn)
    for n in (5, 1, 2, 7, 0):
        x = torch.randn(n, 3)
        given, expected = x.clone(), x.clone()
        torch.testing.assert_close(f(given), fn(expected))
        torch.testing.assert_close(given, expected)


def again() -> anyshape.Artifact:
    return anyshape.precompile(callables.branching, inputs(5), calls=[inputs(12)])


def test_the_same_inputs_give_the_same_key_and_graphs(artifact: anyshape.Artifact) -> None:
    other = child(CHILD, PYTHONHASHSEED="7")
    assert other == {"key": artifact.key, "graphs": list(artifact.graphs)}


def test_threads_and_stock_torch_beside_it(artifact: anyshape.Artifact) -> None:
    """Many threads make the first call at once, and stock torch compiles meanwhile with all that it needs."""
    f = anyshape.load(artifact, callables.branching)
    x, y = inputs(5)
    want = callables.branching(x, y)["a"]
    stock = torch.compile(lambda t: t.cos() + 11)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        results = [pool.submit(f, x, y) for _ in range(5)]
        other = pool.submit(stock, x)
        for result in results:
            torch.testing.assert_close(result.result()["a"], want)
        torch.testing.assert_close(other.result(), x.cos() + 11)
    assert "TRITON_CACHE_DIR" not in os.environ or "anyshape-" not in os.environ["TRITON_CACHE_DIR"]


def test_views_that_are_replayed_are_replayed_after_loading(tmp_path: pathlib.Path) -> None:
    """The gradient of a view of elements at one place; the calls that make it are torch's own operators."""

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ops.aten.transpose.int(x, 0, 1), x * 2

    file = str(tmp_path / "views.any")
    x = torch.ones(1, 3, requires_grad=True).expand(4, 3)
    made = anyshape.precompile(fn, (x,))
    assert made._stored[0].restore.replays
    made.save(file)
    f = anyshape.load(file, fn, trust=True)
    results = []
    for call in (f, fn):
        leaf = torch.randn(1, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
        view, double = call(leaf.expand(5, 3))
        (view.sum() + double.sum()).backward()
        results.append((view.detach(), double.detach(), leaf.grad))
    torch.testing.assert_close(*results)
