"""Calls that run eagerly while a process of its own compiles."""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from typing import Any

import pytest
import torch

import anyshape
from anyshape._torch.compile import compile_scope
from anyshape.ahead import background, helpers, shipping
from anyshape.errors import FallbackWarning, NewBehaviorError, NotCompilableError

WAIT = 400.0


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that is busy with tests, a process that gives way to all others takes minutes."""
    monkeypatch.setattr(helpers, "NICENESS", 0)


def fn(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).softmax(-1) if x.shape[0] > 4 else x + 1


def test_eager_until_the_program_is_there() -> None:
    f = anyshape.compile(fn, background=True)
    x = torch.randn(3, 5)
    torch.testing.assert_close(f(x), fn(x))
    assert f.programs == ()
    assert f.fallbacks == {background.WAITING: 1}
    assert f.wait(WAIT)
    for n in (0, 1, 2, 3, 4):
        x = torch.randn(n, 5)
        torch.testing.assert_close(f(x), fn(x))
    assert [p.calls for p in f.programs] == [5]
    assert f.fallbacks == {background.WAITING: 1}


def test_every_behaviour_is_made() -> None:
    f = anyshape.compile(fn, background=True)
    for n in (3, 9):
        f(torch.randn(n, 5))
        assert f.wait(WAIT)
    for n in (1, 7, 0, 30):
        x = torch.randn(n, 2)
        torch.testing.assert_close(f(x), fn(x))
    assert sorted(p.behavior for p in f.programs) == ["x.shape[0] <= 4", "x.shape[0] > 4"]
    assert "ran eagerly" in str(anyshape.explain(f))


def test_training() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    f = anyshape.compile(net, background=True)
    f(torch.randn(3, 4)).sum().backward()
    assert f.wait(WAIT)
    net.zero_grad()
    x = torch.randn(7, 4)
    f(x).pow(2).sum().backward()
    got = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    net(x).pow(2).sum().backward()
    for a, b in zip(got, net.parameters(), strict=True):
        torch.testing.assert_close(a, b.grad)
    assert [p.calls for p in f.programs] == [1]


def test_this_process_captures_nothing() -> None:
    from torch._dynamo.utils import counters

    f = anyshape.compile(fn, background=True)
    counters.clear()
    f(torch.randn(2, 3))
    assert f.wait(WAIT)
    f(torch.randn(4, 3))
    assert not counters["stats"] and not counters["aot_autograd"]


def test_warming_up_waits() -> None:
    f = anyshape.compile(fn, background=True)
    with anyshape.warm_up(f):
        f(torch.randn(2, 3))
    assert f.fallbacks == {}
    assert len(f.programs) == 1


@pytest.mark.parametrize("policy", ["error", "eager"])
def test_no_other_behaviour_where_none_is_wanted(policy: str) -> None:
    f = anyshape.compile(fn, background=True, on_new_behavior=policy)
    f(torch.randn(2, 3))
    assert f.wait(WAIT)
    x = torch.randn(8, 3)
    if policy == "error":
        with pytest.raises(NewBehaviorError, match=r"x\.shape\[0\] <= 4"):
            f(x)
    else:
        torch.testing.assert_close(f(x), fn(x))
        assert f.fallbacks["a new behaviour, and none is compiled"] == 1
    assert len(f.programs) == 1


def test_while_another_thread_compiles() -> None:
    """Its locks would be in the fork: the call runs eagerly, and whoever warms up waits."""
    from torch._dynamo.convert_frame import compile_lock

    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with compile_lock:
            held.set()
            over.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    f = anyshape.compile(fn, background=True)
    f(torch.randn(2, 3))
    assert f.fallbacks == {background.WAITING: 1} and not helpers.RUNNING
    threading.Timer(0.5, over.set).start()
    with anyshape.warm_up(f):
        f(torch.randn(2, 3))
    thread.join()
    assert len(f.programs) == 1


def test_what_cannot_be_made_elsewhere_is_compiled_here() -> None:
    def breaks(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    f = anyshape.compile(breaks, background=True)
    f(torch.randn(3))
    assert f.wait(WAIT)
    x = torch.randn(5)
    with pytest.warns(FallbackWarning, match="compiled when it is called"):
        torch.testing.assert_close(f(x), breaks(x))
    assert f.programs


def test_an_error_of_eager_is_raised_each_time() -> None:
    def wrong(x: torch.Tensor) -> torch.Tensor:
        return x.view(7)

    f = anyshape.compile(wrong, background=True)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            f(torch.randn(3))
        assert f.wait(WAIT)
    with anyshape.warm_up(f), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert f(torch.randn(7)).shape == (7,)  # others are made there all the same


def test_a_process_that_is_killed() -> None:
    f = anyshape.compile(fn, background=True)
    x = torch.randn(2, 3)
    f(x)
    (process,) = helpers.RUNNING
    os.kill(process.pid, signal.SIGKILL)
    assert f.wait(30)
    assert not helpers.RUNNING
    torch.testing.assert_close(f(x), fn(x))  # such a call is compiled here
    assert len(f.programs) == 1


def test_threads_that_build_kernels_stay_with_the_parent() -> None:
    """Inductor's pool of them is inherited without its threads; a kernel that no cache has is built there."""
    new = random.random()
    here = anyshape.compile(lambda x: x.sin() * new)
    here(torch.randn(3))
    f = anyshape.compile(lambda x: x.cos() * new + 1, background=True)
    f(torch.randn(3))
    assert f.wait(WAIT)
    assert len(f.programs) == 1


def test_a_process_that_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck:
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            pass

        def make(self, *args: Any) -> Any:
            threading.Event().wait()

    monkeypatch.setattr(helpers, "STILL", 1.0)
    monkeypatch.setattr(helpers, "Workshop", Stuck)
    f = anyshape.compile(fn, background=True)
    f(torch.randn(2, 3))
    assert f.wait(WAIT)
    with pytest.warns(FallbackWarning, match="for a thread that stayed behind"):
        f(torch.randn(2, 3))
    assert len(f.programs) == 1 and not helpers.RUNNING


def test_a_process_that_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helpers, "STILL", 1.0)
    stopped = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])

    class Helper:
        niceness, pid = 0, stopped.pid
        receiver, _sender = multiprocessing.Pipe(duplex=False)

        def is_alive(self) -> bool:
            return True

    try:
        stopped.send_signal(signal.SIGSTOP)
        kind, reason = helpers._heard(Helper())  # type: ignore[arg-type]
        assert kind == "refused" and "was stopped" in reason
    finally:
        stopped.kill()
        stopped.wait()


FORKS = """
import os, sys, time, warnings
warnings.simplefilter("ignore")
import torch, anyshape
from anyshape.ahead import helpers
def fn(x):
    return x + 1
f = anyshape.compile(fn, background=True)
f(torch.randn(3))
helper, = helpers.RUNNING
child = os.fork()
if not child:
    assert not helpers.RUNNING and f.wait(0)  # it has none, and waits for none
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), helper.is_alive(), len(helpers.RUNNING), flush=True)
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_that_ends_leaves_the_process_alone(tmp_path: pathlib.Path) -> None:
    source = str(pathlib.Path(anyshape.__file__).parents[1])
    script = tmp_path / "forks.py"
    script.write_text(FORKS)
    ran = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.stdout.split() == ["7", "True", "1"], ran.stderr[-2000:]
    assert "Error in atexit" not in ran.stderr


def test_a_process_that_calls_leave_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """On cores that are never idle it would not end."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        monkeypatch.setattr(helpers, "NICENESS", 19)
        monkeypatch.setattr(helpers, "STILL", 10.0)
        monkeypatch.setattr(helpers, "PATIENCE", 3.0)
        f = anyshape.compile(fn, background=True)
        f(torch.randn(2, 3))
        (first,) = helpers.RUNNING
        assert f.wait(WAIT) and not f.programs
        monkeypatch.setattr(helpers, "SHARE", 0)
        f(torch.randn(2, 3))
        (second,) = helpers.RUNNING
        assert (first.niceness, second.niceness) == (19, 0)
        assert f.wait(WAIT)
        assert len(f.programs) == 1 and set(f.fallbacks) == {background.WAITING}
    finally:
        for process in busy:
            process.kill()
            process.wait()


def test_one_that_computes_is_not_stuck() -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    process = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    try:
        time.sleep(1)
        states = helpers._states(process.pid)
        assert len(states) == 2 and helpers._wants_to_compute(states)
        assert 0.1 < helpers._seconds(states) < 60
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def threads_for_code(sender: Any) -> None:
    from torch._inductor.utils import parallel_num_threads

    compile_scope.in_a_fork()
    sender.send((parallel_num_threads(), torch.get_num_threads()))


def test_code_is_for_the_threads_of_the_parent() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        receiver, sender = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("fork").Process(target=threads_for_code, args=(sender,))
        process.start()
        assert receiver.recv() == (3, 1)
        process.join()
    finally:
        torch.set_num_threads(before)


@pytest.fixture
def _no_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the driver of a GPU is in use."""
    monkeypatch.setattr(helpers, "why_no_fork", lambda: "no fork here")


class Tied(torch.nn.Module):
    """Two layers of one weight, and a buffer that is a view of it."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)
        self.b.weight = self.a.weight
        self.register_buffer("row", self.a.weight.detach()[0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x).relu()) * self.row


@pytest.mark.usefixtures("_no_fork")
@pytest.mark.parametrize("grad", [True, False])
def test_a_process_that_is_started_anew(grad: bool) -> None:
    net = Tied()
    f = anyshape.compile(net, background=True)
    with torch.set_grad_enabled(grad):
        f(torch.randn(3, 6))
        assert f.wait(WAIT)
        for n in (0, 1, 5):
            x = torch.randn(n, 6)
            torch.testing.assert_close(f(x), net(x))
            assert f(x).requires_grad == grad
    assert [p.calls for p in f.programs] == [6] and list(f.fallbacks.values()) == [1]


@pytest.mark.usefixtures("_no_fork")
def test_what_has_no_name_goes_there_by_value() -> None:
    pytest.importorskip("cloudpickle")
    shift = torch.randn(40)
    f = anyshape.compile(lambda x, scale: x * scale + shift, background=True, where=["n >= 1"], shapes={"x": "n 40"})
    f(torch.randn(3, 40), 2.5)
    assert f.wait(WAIT)
    x = torch.randn(7, 40)
    torch.testing.assert_close(f(x, 2.5), x * 2.5 + shift)
    assert [p.calls for p in f.programs] == [1]


@pytest.mark.usefixtures("_no_fork")
def test_what_cannot_go_there_is_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "_has_cloudpickle", lambda: False)
    f = anyshape.compile(lambda x: x + 1, background=True)
    with pytest.warns(FallbackWarning, match=r"no fork here.*pip install cloudpickle"):
        f(torch.randn(3))
    assert len(f.programs) == 1 and not helpers.RUNNING


def test_no_process_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise BlockingIOError("no more of them")

    monkeypatch.setattr(os, "fork", fork)
    f = anyshape.compile(fn, background=True)
    with pytest.warns(FallbackWarning, match="no more of them"):
        f(torch.randn(2, 3))
    monkeypatch.undo()
    assert len(f.programs) == 1 and not helpers.RUNNING


def test_tensors_go_without_their_data() -> None:
    base = torch.randn(100, 100)
    given = {
        "base": base,
        "view": base[10:20].t(),
        "again": base,
        "weight": torch.nn.Parameter(base),
        "small": torch.arange(3),
    }
    data = shipping.dumps(given)
    assert len(data) < 2_000
    made = shipping.loads(data)
    for name, tensor in given.items():
        assert type(made[name]) is type(tensor)
        assert (made[name].shape, made[name].stride(), made[name].dtype) == (
            tensor.shape,
            tensor.stride(),
            tensor.dtype,
        )
        assert (made[name].requires_grad, made[name].storage_offset()) == (
            tensor.requires_grad,
            tensor.storage_offset(),
        )
    assert made["again"] is made["base"]
    assert made["view"].untyped_storage().data_ptr() == made["base"].untyped_storage().data_ptr()
    assert made["small"].tolist() == [0, 1, 2]


def test_many_threads_start_one_process() -> None:
    f = anyshape.compile(fn, background=True)
    started = []
    stock = background.Background._start

    def start(self: Any, *args: Any) -> Any:
        started.append(1)
        return stock(self, *args)

    background.Background._start = start  # type: ignore[method-assign]
    try:
        threads = [threading.Thread(target=f, args=(torch.randn(2, n),)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        background.Background._start = stock  # type: ignore[method-assign]
    assert f.wait(WAIT)
    assert started == [1]
    assert len(f.programs) == 1


@pytest.mark.parametrize("end", ["", "os.kill(os.getpid(), 9)"], ids=["ends", "is killed"])
@pytest.mark.parametrize("fork", [True, False], ids=["fork", "anew"])
def test_one_that_ends_takes_its_process_along(fork: bool, end: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import os, time\ndef fn(x):\n    return x.softmax(-1)\nif 'STUCK' in os.environ:\n    time.sleep(600)\n"
    )
    script = (
        "import os, time, torch, anyshape, mine\n"
        "from anyshape.ahead import helpers\n"
        "helpers._make = lambda *args: time.sleep(600)\n"
        "os.environ['STUCK'] = '1'\n"
        f"{'' if fork else 'helpers.why_no_fork = lambda: str(1)'}\n"
        "f = anyshape.compile(mine.fn, background=True)\n"
        "f(torch.randn(3, 4))\n"
        "assert helpers.RUNNING\n"
        "time.sleep(1)\n"
        f"{end}\n"
    )
    path = os.pathsep.join([str(tmp_path), *(p for p in sys.path if p)])
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,  # which ends when nobody holds it open any more
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert ran.returncode == (-9 if end else 0), ran.stderr


@pytest.mark.parametrize("more", [{"backend": "eager"}, {"distributed": "one-rank"}])
def test_it_is_inductors_and_this_hosts(more: dict[str, Any]) -> None:
    with pytest.raises(NotCompilableError, match="background=True"):
        anyshape.compile(fn, background=True, **more)


def test_no_warning_of_python_about_the_fork() -> None:
    f = anyshape.compile(fn, background=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(torch.randn(2, 3))
        assert f.wait(WAIT)
