"""Where in a declaration something is wrong.

Owns the line a user wrote as it is shown back, with the offending part marked under it, the correction that can be
pasted, and the one way a declaration is refused. Knows nothing of what is being parsed.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, NoReturn

from anyshape.errors import DeclarationError

# `where` of an error is printed after "  where: ", so its second line is moved as far.
_INDENT = " " * 9
_CONTROL = re.compile(r"[^\x20-\x7e\u00a1-\u2027\u202a-\uffff]")
_LONGEST = 100


class MalformedError(DeclarationError):
    """A declaration that cannot be read: `place` has the option (`shapes`) and item (`x`), `span` the part."""

    place: Place | None = None
    span: tuple[int, int] = (0, 0)
    corrected: str | None = None  # what the text of the place should be, where that is known

    def __reduce__(self) -> Any:
        rebuild, (_, *rest) = super().__reduce__()
        return rebuild, (DeclarationError, *rest)


# A traceback names the class that people can import and catch.
MalformedError.__module__, MalformedError.__name__ = DeclarationError.__module__, DeclarationError.__name__
MalformedError.__qualname__ = DeclarationError.__qualname__


@dataclasses.dataclass(frozen=True)
class Place:
    """A piece of text in a declaration: `text` stands between `before` and `after` on the line that is shown."""

    option: str
    item: str | int | None
    before: str
    text: str
    after: str
    pasted: str = "{}"  # how the text, corrected, goes into a call

    def marked(self, start: int = 0, end: int | None = None) -> str:
        """The line, and a second one with carets under `text[start:end]`."""
        start = max(0, min(start, len(self.text)))
        end = len(self.text) if end is None else max(start, min(end, len(self.text)))
        # A window of a long text, so that the carets stay on the screen.
        first = max(0, start - _LONGEST // 2)
        shown = self.text[first : first + _LONGEST]
        carets = "^" * max(1, min(end - first, len(shown)) - (start - first))
        line = _CONTROL.sub(" ", self.before + shown + self.after)
        return f"{line}\n{_INDENT}{' ' * (len(self.before) + start - first)}{carets}"

    def error(
        self,
        what: str,
        start: int = 0,
        end: int | None = None,
        *,
        fix: str | None = None,
        instead: str | None = None,
        whole: str | None = None,
        code: str | None = None,
    ) -> MalformedError:
        """The error for `text[start:end]`, where `instead` should stand, or for a text that should be `whole`."""
        stop = len(self.text) if end is None else end
        if instead is not None:
            whole = self.text[:start] + instead + self.text[stop:]
        if whole is not None:
            whole = " ".join(whole.split())
            fix = self.pasted.replace("{}", whole if len(whole) <= _LONGEST else instead or whole[:_LONGEST], 1)
        error = MalformedError(what, where=self.marked(start, end), fix=fix, code=code)
        error.place = self
        error.span = (start, stop)
        error.corrected = whole
        return error

    def refuse(
        self,
        what: str,
        start: int = 0,
        end: int | None = None,
        *,
        fix: str | None = None,
        instead: str | None = None,
        whole: str | None = None,
        code: str | None = None,
    ) -> NoReturn:
        raise self.error(what, start, end, fix=fix, instead=instead, whole=whole, code=code)


def in_key(option: str, key: str, value: object) -> Place:
    """The key of a mapping: the `hidden` of `shapes["hidden"] = "batch seq"`."""
    return Place(option, key, f'{option}["', key, f'"] = {brief(value)}', f'{option}={{"{{}}": {brief(value)}}}')


def in_value(option: str, key: str, text: str) -> Place:
    """The text under a key."""
    return Place(option, key, f'{option}["{key}"] = "', text, '"', f'{option}={{"{key}": "{{}}"}}')


def in_clause(option: str, index: int, text: str) -> Place:
    """One clause of a list."""
    return Place(option, index, f'{option}[{index}] = "', text, '"', f'{option}=["{{}}"]')


def in_object(option: str, item: str | int | None, value: object) -> Place:
    """A value that is no text at all."""
    at = "" if item is None else f"[{item}]" if isinstance(item, int) else f'["{item}"]'
    return Place(option, item, f"{option}{at} = ", brief(value), "")


def brief(value: object) -> str:
    """A value in a few words; a `repr` that fails or runs long says nothing more than the type."""
    try:
        text = f'"{value}"' if isinstance(value, str) else repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 60 else text[:57] + "..."


def kind(value: Any) -> str:
    """The type of a value as a user would say it."""
    return "None" if value is None else f"{'an' if type(value).__name__[0] in 'aeiou' else 'a'} {type(value).__name__}"
