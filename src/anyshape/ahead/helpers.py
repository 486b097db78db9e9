"""Processes that compile for this one.

Owns how they are had: a fork has the callable and the arguments as they are; where there can be none, one is started
anew and told what it needs. And their ends: what was made, that it failed, or that nothing comes any more.
"""

from __future__ import annotations

import atexit
import contextlib
import glob
import multiprocessing
import multiprocessing.connection
import os
import pickle
import subprocess
import sys
import time
import warnings
from typing import Any

import torch

from anyshape._torch import compiling, forms
from anyshape.ahead import shipping
from anyshape.ahead.making import Workshop
from anyshape.errors import ArtifactError

LONGEST = 1800.0  # seconds that a process may take
STILL = 60.0  # seconds in which it does nothing at all, after which it is taken for stuck
NICENESS = 19  # calls that are served go first

Job = tuple[Any, dict[str, Any], tuple[Any, ...], dict[str, Any]]  # a callable, a workshop's options, and a call


class Forked:
    """Has everything as it is here."""

    def __init__(self, job: Job) -> None:
        self.receiver, sender = multiprocessing.Pipe(duplex=False)
        self._process = multiprocessing.get_context("fork").Process(
            target=_forked, args=(sender, job), name="anyshape-background"
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


class Started:
    """Begins with nothing; for where the driver of a GPU is in use, which does not outlive a fork."""

    def __init__(self, job: Job) -> None:
        if os.name == "nt":
            raise shipping.Unshippable("no pipe can be handed to it on this system")
        gpu = torch.cuda.current_device() if torch.cuda.is_initialized() else None
        self._told: bytes | None = shipping.dumps((job, forms.state(), gpu, NICENESS))
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
        job, state, gpu, niceness = shipping.loads(connection.recv_bytes())
    except Exception as error:
        made = "refused", f"a process that was started for it cannot have it: {type(error).__name__}: {error}"
        connection.send_bytes(pickle.dumps(made))
        return
    if gpu is not None:
        torch.cuda.set_device(gpu)
    with forms.in_state(state):
        _make(connection, job, niceness)


def _forked(sender: Any, job: Job) -> None:
    compiling.in_a_fork()
    _make(sender, job, NICENESS)


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
    if niceness and hasattr(os, "SCHED_IDLE"):  # Linux
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
    until = time.monotonic() + LONGEST
    seen, since = _activity(helper.pid), time.monotonic()
    while time.monotonic() < until:
        if helper.receiver.poll(STILL / 10):
            return pickle.loads(helper.receiver.recv_bytes())  # type: ignore[no-any-return]
        if not helper.is_alive() and not helper.receiver.poll():
            return "failed", "the process died"
        now = _activity(helper.pid)
        if now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > STILL:
            return "refused", "a process that is to compile waits for ever, for a thread that stayed behind"
    return "failed", f"it took more than {LONGEST:.0f} s"


def _activity(pid: int | None) -> object:
    """Changes for as long as a process or one that it started does something; where that cannot be seen, it does."""
    parents: dict[int, int] = {}
    spent: dict[int, tuple[str, ...]] = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(path) as file:  # one that ended meanwhile
            fields = file.read().rpartition(")")[2].split()
            of = int(path.split("/")[2])
            parents[of], spent[of] = int(fields[1]), ("running",) if fields[0] in "RD" else tuple(fields[11:15])
    members = {pid}
    while more := {child for child, parent in parents.items() if parent in members} - members:
        members |= more
    seen = {member: spent[member] for member in members if member in spent}
    return seen if seen and ("running",) not in seen.values() else object()
