"""Thread-local patches: a replaced function of torch's is the replacement in the capturing thread alone.

Owns that a function which is replaced while a capture runs is a stand-in in the capturing thread alone: any other
thread, which may trace by ways of its own (`make_fx`, export, fake tensors), is led to what was there before.
"""

from __future__ import annotations

import functools
import inspect
import threading
from typing import Any


def divided(stand_in: Any, elsewhere: Any) -> Any:
    """A function that is `stand_in` in this thread and `elsewhere` in any other.

    Only functions: what is not called, and what is a class, is reached by Dynamo alone, under its lock.
    """
    if isinstance(stand_in, staticmethod) and isinstance(elsewhere, staticmethod):
        return staticmethod(divided(stand_in.__func__, elsewhere.__func__))
    if not inspect.isfunction(stand_in) or not inspect.isfunction(elsewhere):
        return stand_in
    own = threading.get_ident
    thread = own()

    @functools.wraps(stand_in)
    def parted(*args: Any, **kwargs: Any) -> Any:
        return (stand_in if own() == thread else elsewhere)(*args, **kwargs)

    return parted
