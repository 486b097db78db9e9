"""Exceptions of the user's signal handlers (deadlines, interrupts), which captures must not swallow.

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
_heeds: list[tuple[heeded, types.FrameType]] = []  # the outermost one, and who began it
_MOST_TRIES = 100  # to put handlers back, if one raises whenever it is there
_NEARBY = 16  # frames from a guard's text to where a verification fails


class heeded(contextlib.ContextDecorator):
    """What a handler raises inside is raised, whoever caught it on the way and whatever was made of it."""

    def __init__(self) -> None:
        self._noted: dict[int, _Noted] = {}
        self._late: list[BaseException] = []
        self._outermost = False

    def _recreate_cm(self) -> heeded:
        return heeded()

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread() or _heeding():
            return
        try:
            self._outermost = True
            _raised.clear()
            for number in signal.valid_signals():
                handler: Any = signal.getsignal(number)
                if callable(handler) and not isinstance(handler, (_Noted, signal.Handlers)):
                    self._noted[number] = _Noted(handler)
                    signal.signal(number, self._noted[number])
            _heeds.append((self, sys._getframe(1)))
        except BaseException:
            self.put_back()
            raise

    def __exit__(self, *_: object) -> None:
        if not self._outermost:
            return
        try:
            self.put_back()
        finally:
            self.put_back()  # a handler may have raised just before
        if _raised or self._late:
            arrived = (*_raised, *self._late)[0]
            _raised.clear()
            raise arrived

    def put_back(self) -> None:
        """The handlers as they were, all of them, whatever one of them raises meanwhile."""
        for _ in range(_MOST_TRIES):
            try:
                _heeds.clear()  # first: what a handler raises from here on is on its way to the user
                for number, wrapper in list(self._noted.items()):
                    installed: Any = signal.getsignal(number)  # a handler may well have installed another
                    if installed is wrapper:
                        signal.signal(number, wrapper.handler)
                    del self._noted[number]
                return
            except BaseException as error:
                self._late.append(error)


def _heeding() -> bool:
    """Whether a `heeded` is under way here. One whose end was itself interrupted is not, and is ended now."""
    if not _heeds or threading.current_thread() is not threading.main_thread():
        return False
    begun, by = _heeds[0]
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame is not by:
        frame = frame.f_back
    if frame is None:
        _holds.clear()
        _waiting.clear()
        begun.put_back()
    return frame is not None


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
    guard = _guard()
    here = threading.current_thread() is threading.main_thread() and not _heeding()  # where it is delivered
    if here and guard is not None and guard.f_back is not None:
        _unheard[:] = [(own, guard.f_back)]
    raise own


def _guard() -> types.FrameType | None:
    """The frame of Dynamo's text of a guard, if one is asking: nearby, not some program that was given as text."""
    frame: types.FrameType | None = sys._getframe(2)
    for _ in range(_NEARBY):
        if frame is None or frame.f_code.co_filename == "<string>":
            return frame
        frame = frame.f_back
    return None


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
        self._here = _heeding()
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
