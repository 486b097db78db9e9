"""Calls that begin again, or run eagerly, from their beginning: what the engine raises through compiled frames.

Owns the two exceptions, which no frame on the way may take for an error of its own. Knows nothing of torch.
"""

from __future__ import annotations

import warnings

from anyshape.errors import FallbackWarning


class RunEagerly(BaseException):
    """A call has to run as it is, from its beginning. Not an Exception, so that no frame on the way keeps it."""

    def __init__(self, reason: str, *, expected: bool) -> None:
        super().__init__(reason)
        self.reason, self.expected = reason, expected

    def say(self) -> None:
        """Eager had a result where no program could be made: that is worth a word."""
        if not self.expected:
            warnings.warn(f"a call ran eagerly: {self.reason}", FallbackWarning, stacklevel=3)


class RunAgain(BaseException):
    """Another thread has made the program that this call was waiting to make."""
