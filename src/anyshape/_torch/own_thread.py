"""Patches that one thread sees.

Owns that a function of torch's which is patched while a capture is set up is a stand-in in the capturing thread alone:
any other thread, which may trace by ways of its own (`make_fx`, export, fake tensors), is led to what was there before.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock

_ENTER = "__enter__"
_PATCH: Any = mock._patch  # type: ignore[attr-defined]
_lock = threading.RLock()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """What is patched inside, by `unittest.mock`, is patched for this thread until it is put back, inside or later."""
    thread = threading.get_ident()
    with _lock:  # several threads may set up at a time where Dynamo is not asked
        stock = getattr(_PATCH, _ENTER)

        def enter(self: Any) -> Any:
            made = stock(self)
            if threading.get_ident() == thread:
                _divide(self, thread)
            return made

        setattr(_PATCH, _ENTER, enter)
        try:
            yield
        finally:
            setattr(_PATCH, _ENTER, stock)


def _divide(patch: Any, thread: int) -> None:
    """Only functions: what is not called, and what is a class, is reached by Dynamo alone, under its lock."""
    here, elsewhere = vars(patch.target).get(patch.attribute), patch.temp_original
    if not inspect.isfunction(here) or not inspect.isfunction(elsewhere):
        return
    stand_in, own = here, threading.get_ident

    @functools.wraps(stand_in)
    def divided(*args: Any, **kwargs: Any) -> Any:
        return (stand_in if own() == thread else elsewhere)(*args, **kwargs)

    setattr(patch.target, patch.attribute, divided)
