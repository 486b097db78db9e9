"""Commands run in this process, with what they printed."""

from __future__ import annotations

import contextlib
import io
import types
from typing import Any

from anyshape import cli


def run(*arguments: str) -> Any:
    """What a command printed, its exit status, and the error that it ended with."""
    printed, status, exception = io.StringIO(), 0, None
    with contextlib.redirect_stdout(printed):
        try:
            status = cli.run(arguments)
        except (Exception, SystemExit) as error:
            exception = error
    return types.SimpleNamespace(output=printed.getvalue(), exit_code=status, exception=exception)
