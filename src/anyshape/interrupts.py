"""What the user's own handlers of signals raise.

A handler is run wherever the interpreter happens to be, and what it raises (a deadline, an interrupt) is for whoever
installed it. A capture runs code that catches exceptions in many places, torch's and ours, and takes them for failures
of its own. Owns that such an exception arrives nevertheless, and that none comes while a state is half changed.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any


class _Noted:
    """A handler of the user's, and what it raises."""

    def __init__(self, handler: Callable[[int, Any], Any]) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: Any) -> Any:
        if _holds:
            _waiting.append((self, number, frame))
            return None
        try:
            return self.handler(number, frame)
        except BaseException as error:
            if _heeds:
                _raised.append(error)
            raise


# Handlers run in one thread, the main one, and so does all that is said here.
_raised: list[BaseException] = []  # inside `heeded`
_unheard: list[tuple[BaseException, types.FrameType]] = []  # raised in a guard, where nobody hears it
_waiting: list[tuple[_Noted, int, Any]] = []  # inside `Change`
_holds: list[None] = []
_heeds: list[None] = []


@contextlib.contextmanager
def heeded() -> Iterator[None]:
    """What a handler raises inside is raised, whoever caught it on the way and whatever was made of it."""
    if _heeds or threading.current_thread() is not threading.main_thread():
        yield
        return
    _raised.clear()
    _heeds.append(None)
    noted: dict[int, _Noted] = {}
    try:
        for number in signal.valid_signals():
            handler: Any = signal.getsignal(number)
            if callable(handler) and not isinstance(handler, (_Noted, signal.Handlers)):
                noted[number] = _Noted(handler)
                signal.signal(number, noted[number])
        yield
    finally:
        _heeds.clear()  # first: what a handler raises from here on is on its way to the user
        for own, wrapper in noted.items():
            installed: Any = signal.getsignal(own)  # a handler may well have installed another
            if installed is wrapper:
                signal.signal(own, wrapper.handler)
        if _raised:
            arrived = _raised.pop(0)
            _raised.clear()
            raise arrived


def arrive() -> None:
    """Raise now what a handler has raised inside `heeded`: what was found out meanwhile is worth nothing."""
    if _raised and threading.current_thread() is threading.main_thread():
        raise _raised[0]


def pass_on(error: BaseException) -> None:
    """Raise again, in a guard, what is no answer to it.

    Guards are called by C++ that drops what they raise: it is kept for the capture that follows when no guard holds.
    """
    own = error if not isinstance(error, Exception) else _of_handler(error) or memory_error(error)
    if own is None:
        return
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.startswith("<"):  # the text of the guard
        frame = frame.f_back
    if not _heeds and frame is not None and frame.f_back is not None:
        _unheard[:] = [(own, frame.f_back)]
    raise own


def _of_handler(error: BaseException) -> BaseException | None:
    """The exception, or one that it was made of, that was raised inside of a handler."""
    codes = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    for one in _chain(error):
        trace = one.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code in codes:
                return one
            trace = trace.tb_next
    return None


def _code(handler: Any) -> types.CodeType | None:
    while isinstance(handler, (_Noted, functools.partial)):
        handler = handler.handler if isinstance(handler, _Noted) else handler.func
    if not isinstance(handler, (types.FunctionType, types.MethodType)):
        handler = vars(type(handler)).get("__call__")
    return getattr(handler, "__code__", None)


def deliver() -> None:
    """Raise what was kept, if the call in whose guard it came is still under way."""
    if not _unheard or threading.current_thread() is not threading.main_thread():
        return
    error, calling = _unheard.pop()
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame is not calling:
        frame = frame.f_back
    if frame is not None:
        raise error


class Change:
    """Inside, handlers wait but between `settled` and `unsettled`: for what has to be changed, and put back, whole."""

    def __enter__(self) -> Change:
        self._here = bool(_heeds) and threading.current_thread() is threading.main_thread()
        self.unsettled()
        return self

    def __exit__(self, *_: object) -> None:
        self.settled()

    def unsettled(self) -> None:
        if self._here:
            _holds.append(None)

    def settled(self) -> None:
        """What waited is run now."""
        if self._here and _holds:
            _holds.pop()
        while self._here and _waiting and not _holds:
            handler, number, frame = _waiting.pop(0)
            handler(number, frame)


def memory_error(error: BaseException) -> MemoryError | None:
    """The end of memory that another error was made of: no fault of what was captured, and the user's to know."""
    return next((one for one in _chain(error) if isinstance(one, MemoryError)), None)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and those that it was made of."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = getattr(error, "inner_exception", None) or error.__cause__ or error.__context__
