"""Warnings from fake runs and traces, silenced for all threads at once.

Owns the scope in which none is heard: while a node is run for stand-ins of sizes, or on fake tensors to compare. Python
keeps its filters for the process, and two threads that change them and put them back in turn would leave them changed;
so the first thread to enter changes them, and the last to leave puts them back.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator

_RUNNING = r"torch\.(?!_inductor)|anyshape\."  # what runs operators; that a compiler warns is for the user to see
_lock = threading.Lock()
_inside = 0
_filters = contextlib.ExitStack()


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """No warning of an operator that runs inside reaches the user."""
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _inside
    with _lock:
        _inside += 1
        if _inside == 1:
            _filters.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", module=_RUNNING)


def _leave() -> None:
    global _inside
    with _lock:
        _inside -= 1
        if _inside == 0:
            _filters.close()
