"""What handlers of signals raise arrives, whoever catches exceptions on the way; and never in the middle of a change."""

from __future__ import annotations

import contextlib
import functools
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from anyshape.foundation import interrupts

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="signals are those of POSIX")


class Deadline(Exception):
    pass


@pytest.fixture
def raising() -> Iterator[list[BaseException]]:
    """A handler that raises what is in the list, in turn."""
    errors: list[BaseException] = []

    def handler(number: int, frame: Any) -> None:
        raise errors.pop(0)

    before = signal.signal(signal.SIGUSR1, handler)
    yield errors
    assert signal.getsignal(signal.SIGUSR1) is handler
    signal.signal(signal.SIGUSR1, before)
    interrupts._unheard.clear()


ERRORS = [Deadline("now"), KeyboardInterrupt(), SystemExit(3), MemoryError(), RecursionError(), ValueError()]


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_it_arrives_though_it_was_caught(raising: list[BaseException], error: BaseException) -> None:
    raising.append(error)
    with pytest.raises(type(error)) as caught, interrupts.heeded():
        with contextlib.suppress(BaseException):
            signal.raise_signal(signal.SIGUSR1)
    assert caught.value is error


def test_it_arrives_though_another_was_made_of_it(raising: list[BaseException]) -> None:
    raising.append(Deadline())
    with pytest.raises(Deadline), interrupts.heeded():
        try:
            signal.raise_signal(signal.SIGUSR1)
        except Deadline as error:
            raise RuntimeError("failed") from error


def test_the_first_of_several_arrives(raising: list[BaseException]) -> None:
    first = Deadline()
    raising.extend([first, KeyboardInterrupt(), Deadline()])
    with pytest.raises(Deadline) as caught, interrupts.heeded():
        for _ in range(3):
            with contextlib.suppress(BaseException):
                signal.raise_signal(signal.SIGUSR1)
    assert caught.value is first
    with interrupts.heeded():
        pass  # nothing is left over


def test_other_errors_and_none_are_as_they_are(raising: list[BaseException]) -> None:
    with interrupts.heeded():
        pass
    with pytest.raises(KeyError), interrupts.heeded():
        raise KeyError


def test_a_handler_may_install_another(raising: list[BaseException]) -> None:
    def once(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise Deadline

    own = signal.signal(signal.SIGUSR1, once)
    with pytest.raises(Deadline), interrupts.heeded():
        signal.raise_signal(signal.SIGUSR1)
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    signal.signal(signal.SIGUSR1, own)


def test_scopes_within_one_another_are_one(raising: list[BaseException]) -> None:
    raising.append(Deadline())
    with pytest.raises(Deadline), interrupts.heeded():
        with contextlib.suppress(Deadline), interrupts.heeded():
            signal.raise_signal(signal.SIGUSR1)
        with pytest.raises(Deadline):
            interrupts.arrive()


def test_in_other_threads_there_are_no_handlers(raising: list[BaseException]) -> None:
    installed = signal.getsignal(signal.SIGUSR1)
    seen: list[Any] = []

    def work() -> None:
        with interrupts.heeded(), interrupts.Change():
            interrupts.arrive()
            interrupts.deliver()
            seen.append(signal.getsignal(signal.SIGUSR1))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [installed]


def test_none_comes_in_the_middle_of_a_change(raising: list[BaseException]) -> None:
    steps: list[str] = []
    raising.append(Deadline())
    with pytest.raises(Deadline), interrupts.heeded(), interrupts.Change() as change:
        signal.raise_signal(signal.SIGUSR1)
        steps.append("changed")
        try:
            change.settled()
            steps.append("inside")
        finally:
            change.unsettled()
            steps.append("back")
    assert steps == ["changed", "back"]


def test_nor_in_the_middle_of_undoing_it(raising: list[BaseException]) -> None:
    steps: list[str] = []
    raising.extend([Deadline(), KeyboardInterrupt()])
    with pytest.raises(Deadline), interrupts.heeded(), interrupts.Change() as change:
        change.settled()
        change.unsettled()
        signal.raise_signal(signal.SIGUSR1)
        steps.append("back")
    assert steps == ["back"]
    raising.clear()


def ask() -> bool:
    """As an admission does: what cannot be told is not admitted."""
    try:
        signal.raise_signal(signal.SIGUSR1)
    except BaseException as error:
        interrupts.pass_on(error)
        return False
    return True


def call(*, asks: bool, captures: bool) -> None:
    if asks:
        with contextlib.suppress(BaseException):  # as C++ does, which calls a guard made of text
            eval(compile("ask()", "<string>", "eval"))
    if captures:
        interrupts.deliver()


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_what_comes_in_a_guard_is_kept_for_the_capture_of_that_call(
    raising: list[BaseException], error: BaseException
) -> None:
    raising.append(error)
    with pytest.raises(type(error)):
        call(asks=True, captures=True)
    call(asks=False, captures=True)


def test_what_comes_in_a_guard_is_not_the_next_calls(raising: list[BaseException]) -> None:
    raising.append(Deadline())
    call(asks=True, captures=False)  # another guard held
    call(asks=False, captures=True)


class Handler:
    def __call__(self, number: int, frame: Any) -> None:
        raise Deadline

    def method(self, number: int, frame: Any) -> None:
        self(number, frame)


@pytest.mark.parametrize("made", ["object", "method", "partial"])
def test_handlers_of_every_kind(raising: list[BaseException], made: str) -> None:
    one = Handler()
    handlers = {"object": one, "method": one.method, "partial": functools.partial(one.method)}
    own = signal.signal(signal.SIGUSR1, handlers[made])
    try:
        with pytest.raises(Deadline):
            call(asks=True, captures=True)
    finally:
        signal.signal(signal.SIGUSR1, own)


def test_other_errors_are_an_answer() -> None:
    interrupts.pass_on(ValueError())
    interrupts.deliver()


def test_outside_of_a_guard_nothing_is_kept() -> None:
    """What is raised there is on its way already; `python -m` has frames of its own at the bottom of every stack."""
    with pytest.raises(MemoryError):
        interrupts.pass_on(MemoryError())
    interrupts.deliver()


def test_the_end_of_memory_is_found_in_what_was_made_of_it() -> None:
    class Wrapped(Exception):
        def __init__(self, inner: BaseException) -> None:
            self.inner_exception = inner

    end = MemoryError()
    assert interrupts.memory_error(end) is interrupts.memory_error(Wrapped(end)) is end
    try:
        try:
            raise end
        except MemoryError as error:
            raise ValueError from error
    except ValueError as error:
        assert interrupts.memory_error(error) is end
    assert interrupts.memory_error(ValueError()) is None
    loop = ValueError()
    loop.__cause__ = KeyError()
    loop.__cause__.__cause__ = loop
    assert interrupts.memory_error(loop) is None
