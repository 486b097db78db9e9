"""Worker processes that compile for this one: forked or spawned, and how they end.

Owns how they are had: a fork has the callable and the arguments as they are; where there can be none, one is started
anew and told what it needs. And their ends: what was made, that it failed, or that nothing comes any more.
"""

from __future__ import annotations

import atexit
import contextlib
import glob
import multiprocessing
import multiprocessing.connection
import multiprocessing.process
import os
import pickle
import subprocess
import sys
import threading
import time
import warnings
from typing import Any

import torch

from anyshape._torch.compile import compile_scope
from anyshape._torch.runtime import call_signature
from anyshape.ahead import shipping
from anyshape.ahead.making import Workshop
from anyshape.errors import ArtifactError

LONGEST = 1800.0  # seconds that a process may take
STILL = 60.0  # seconds in which it does nothing at all, after which it is taken for stuck
PATIENCE = 60.0  # seconds after which one that calls leave hardly any time to is begun again with a share of its own
HARDLY = 0.1  # of the time that has passed
NICENESS = 19  # calls that are served go first
SHARE = 10  # the niceness of one that has a tenth of a core though calls want the whole of it

Job = tuple[Any, dict[str, Any], tuple[Any, ...], dict[str, Any]]  # a callable, a workshop's options, and a call


class Forked:
    """Has everything as it is here."""

    def __init__(self, job: Job, niceness: int) -> None:
        self.niceness = niceness
        self.receiver, sender = multiprocessing.Pipe(duplex=False)
        self._process = multiprocessing.get_context("fork").Process(
            target=_forked, args=(sender, job, niceness), name="anyshape-background"
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of others: the fork takes none of their locks
            self._process.start()
        sender.close()
        self.pid = self._process.pid

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def end(self) -> None:
        self._process.kill()
        self._process.join()

    def disown(self) -> None:
        """Python waits, when a process ends, for the children that it knows, and these are its parent's."""
        getattr(multiprocessing.process, "_children", set()).discard(self._process)


class Started:
    """Begins with nothing; for where the driver of a GPU is in use, which does not outlive a fork."""

    def __init__(self, job: Job, niceness: int) -> None:
        self.niceness = niceness
        if os.name == "nt":
            raise shipping.Unshippable("no pipe can be handed to it on this system")
        gpu = torch.cuda.current_device() if torch.cuda.is_initialized() else None
        self._told: bytes | None = shipping.dumps((job, call_signature.state(), gpu, niceness))
        self.receiver, other = multiprocessing.Pipe()
        command = f"import sys; sys.path[:] = {sys.path!r}; from anyshape.ahead import helpers; helpers.main()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", command, str(other.fileno())],
            pass_fds=[other.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # what modules print when they are imported has been printed here
        )
        other.close()
        self.pid = self._process.pid

    def tell(self) -> None:
        """What it is to make. Returns when it listens."""
        if self._told is not None:
            self.receiver.send_bytes(self._told)
            self._told = None

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


Helper = Forked | Started
RUNNING: set[Helper] = set()


@atexit.register
def _end() -> None:
    """A process that compiles is of no use to one that ends."""
    for helper in list(RUNNING):
        with contextlib.suppress(Exception):
            helper.end()


def _after_fork() -> None:
    """A process that this one forks, for whatever purpose, has no part in those that compile for this one."""
    for helper in RUNNING:
        if isinstance(helper, Forked):
            helper.disown()
    RUNNING.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def why_no_fork() -> str:
    """Empty where there can be one."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return "this system has no fork"
    if multiprocessing.current_process().daemon:
        return "a daemonic process may not fork"
    if torch.cuda.is_initialized():  # capturing asks it: which attention kernel, for one, is chosen by the device
        return "the driver of a GPU does not outlive a fork"
    return ""


# -- in the process --------------------------------------------------------------------------------------------------


def main() -> None:
    """One that was started anew."""
    connection = multiprocessing.connection.Connection(int(sys.argv[1]))
    try:
        told = connection.recv_bytes()
        _end_with(connection)
        job, state, gpu, niceness = shipping.loads(told)
    except Exception as error:
        made = "refused", f"a process that was started for it cannot have it: {type(error).__name__}: {error}"
        connection.send_bytes(pickle.dumps(made))
        return
    if gpu is not None:
        torch.cuda.set_device(gpu)
    with call_signature.in_state(state):
        _make(connection, job, niceness)


def _forked(sender: Any, job: Job, niceness: int) -> None:
    compile_scope.in_a_fork()
    parent = multiprocessing.parent_process()
    assert parent is not None
    _end_with(parent.sentinel)
    _make(sender, job, niceness)


def _end_with(parent: Any) -> None:
    """A process whose parent was killed is of no use, and holds open what it was forked with."""

    def watch() -> None:
        multiprocessing.connection.wait([parent])
        os._exit(1)

    threading.Thread(target=watch, name="anyshape-watch", daemon=True).start()


def _make(sender: Any, job: Job, niceness: int) -> None:
    _give_way(niceness)
    live, options, args, kwargs = job
    try:
        made: tuple[str, Any] = "made", [s.members("programs/0") for s in Workshop(live, **options).make(args, kwargs)]
    except ArtifactError as error:
        made = "refused", error.what
    except BaseException as error:
        made = "failed", f"{type(error).__name__}: {error}"
    sender.send_bytes(pickle.dumps(made))


def _give_way(niceness: int) -> None:
    """A call that is served wants its core at once: being nice alone lets it wait for the rest of a slice."""
    with contextlib.suppress(OSError):
        os.nice(niceness)
    if niceness > SHARE and hasattr(os, "SCHED_IDLE"):  # Linux
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


# -- in this one -----------------------------------------------------------------------------------------------------


def outcome(helper: Helper) -> tuple[str, Any]:
    """What a process made, or why it did not; it has ended then."""
    try:
        if isinstance(helper, Started):
            helper.tell()
        return _heard(helper)
    except (EOFError, OSError):
        return "failed", "the process died"
    finally:
        helper.end()
        RUNNING.discard(helper)


def _heard(helper: Helper) -> tuple[str, Any]:
    began = since = time.monotonic()
    seen: object = None
    while (now := time.monotonic()) < began + LONGEST:
        if helper.receiver.poll(STILL / 10):
            return pickle.loads(helper.receiver.recv_bytes())  # type: ignore[no-any-return]
        if not helper.is_alive() and not helper.receiver.poll():
            return "failed", "the process died"
        states = _states(helper.pid)
        if not states or _wants_to_compute(states) or states != seen:
            seen, since = states, now
        elif now - since > STILL and all(state in "TtZ" for state, _ in states.values()):
            return "refused", "a process that is to compile was stopped, by a signal or a debugger"
        elif now - since > STILL:
            return "refused", "a process that is to compile waits for ever, for a thread that stayed behind"
        patient = helper.niceness <= SHARE or now - began < PATIENCE or not _wants_to_compute(states)
        if not patient and _seconds(states) < HARDLY * (now - began):
            return "starved", "calls leave it no time"
    return "failed", f"it took more than {LONGEST:.0f} s"


States = dict[int, tuple[str, int]]


def _wants_to_compute(states: States) -> bool:
    return any(state in "RD" for state, _ in states.values())


def _seconds(states: States) -> float:
    return sum(ticks for _, ticks in states.values()) / os.sysconf("SC_CLK_TCK")


def _states(pid: int | None) -> States:
    """Of a process and those that it started: what each does, and its clock ticks, those of its dead children too.

    Empty where that cannot be seen.
    """
    parents: dict[int, int] = {}
    states: States = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(path) as file:  # one that ended meanwhile
            fields = file.read().rpartition(")")[2].split()
            of = int(path.split("/")[2])
            parents[of], states[of] = int(fields[1]), (fields[0], sum(map(int, fields[11:15])))
    members = {pid}
    while more := {child for child, parent in parents.items() if parent in members} - members:
        members |= more
    return {member: states[member] for member in members if member in states}
