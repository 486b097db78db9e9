"""Admission of a loaded program: sizes verified when it was made, or verified now.

Owns the short way to an answer: what was verified when the program was made, for some sizes or for all that answer
alike, needs none of what was assumed. For others it is read, and they are verified as they would have been then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anyshape.ahead.stored import Stored
from anyshape.foundation.call_keys import ADMITTED, UNTOLD, key_function

if TYPE_CHECKING:
    from anyshape.admission.admission import Admission


class Admitted:
    """Called with a program's inputs: why they do not belong to it, or None where they do."""

    def __init__(self, stored: Stored) -> None:
        self._stored = stored
        self._key = key_function(stored.parts)
        self._known = stored.known
        scope: dict[str, Any] = {}
        text, self._answers = stored.admits
        exec(text, scope)
        self._evaluate: Callable[[Any], int] = scope.get("evaluate", lambda key: UNTOLD)
        self._whole: Admission | None = None
        self._lock = threading.Lock()

    def __call__(self, *values: Any) -> str | None:
        if self._whole is None:
            key = self._key(values)
            told = ADMITTED if key in self._known else self._told(key)
            if told != UNTOLD:
                return None if told == ADMITTED else f"it needs {self._answers[told]}"
            with self._lock:
                self._whole = self._whole or self._stored.admission()
        if self._whole(*values):
            return None
        last = self._whole.last
        return "its sizes are not admitted" if last is None else f"it needs {last.text}"

    @property
    def classes(self) -> int:
        return 1 if self._whole is None else self._whole.classes

    def _told(self, key: Any) -> int:
        try:
            return self._evaluate(key)
        except ArithmeticError:  # a question that has no answer here (`n % 0`)
            return UNTOLD
