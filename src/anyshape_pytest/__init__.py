"""The pytest plugin: `--anyshape-report`, and the `expect_programs` fixture.

Owns what is said at the end of a test run, and in the failure of a test that compiled more than it expected. Stands
beside the package rather than in it, because pytest loads it always, and importing anyshape imports torch.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from anyshape.observing import Observation

_KEY = "_anyshape_observation"


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("anyshape")
    group.addoption(
        "--anyshape-report",
        metavar="FILE",
        nargs="?",
        const="-",
        default=None,
        help="observe every compilation of the tests; print a summary, and write FILE (.html or .json) if one is named",
    )


def pytest_configure(config: Any) -> None:
    target = config.getoption("--anyshape-report", default=None)
    if target is None:
        return
    from anyshape.errors import Error
    from anyshape.observing import observe

    if target != "-":
        from anyshape.doctor.command import check_output

        try:
            check_output(pathlib.Path(target))
        except Error as error:  # before the tests are run, not after
            raise pytest.UsageError(str(error)) from None

    stack = contextlib.ExitStack()
    setattr(config, _KEY, (stack.enter_context(observe()), stack))


def pytest_unconfigure(config: Any) -> None:
    observation = getattr(config, _KEY, None)
    if observation is not None:
        observation[1].close()


def pytest_terminal_summary(terminalreporter: Any, config: Any) -> None:
    observation = getattr(config, _KEY, None)
    if observation is None:
        return
    report = observation[0].report
    terminalreporter.section("anyshape")
    terminalreporter.write_line(str(report))
    target = config.getoption("--anyshape-report")
    if target != "-":
        from anyshape.doctor.command import save
        from anyshape.doctor.report import Report

        path = pathlib.Path(target)
        if save(report, path, Report.write_html if path.suffix == ".html" else Report.write_json):
            terminalreporter.write_line(f"written: {path}")


@pytest.fixture
def expect_programs() -> Iterator[Callable[..., Any]]:
    """`with expect_programs(1): ...` fails unless so many programs are compiled in the block, and says why each was.

    Counts stock torch's programs and anyshape's; `at_most=True` allows fewer.
    """
    yield _expect


@contextlib.contextmanager
def _expect(expected: int, *, at_most: bool = False) -> Iterator[Observation]:
    from anyshape.observing import observe

    with observe() as observation:
        yield observation
    report = observation.report
    count = report.compiles
    if count > expected or (count < expected and not at_most):
        wanted = f"at most {expected}" if at_most else str(expected)
        pytest.fail(f"expected {wanted} programs, {count} were compiled\n{report}", pytrace=False)
