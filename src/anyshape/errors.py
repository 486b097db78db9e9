"""Every error that anyshape raises itself.

Owns the codes, the form of a message (what happened, where, the value, one fix) and the classes people catch. Knows
nothing of torch, and nothing of when an error is raised. An error of the user's program is not here: it is eager's own.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, ClassVar, Final

from anyshape import plain_text

HELP: Final = "python -m anyshape help"  # prints the page of a code; it works wherever the package can be imported

# A code is for ever: it is never reused, and each has a page in docs/errors.
CODES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "AS001": "this version of torch is not supported",
        "AS002": "an optional package is missing",
        "AS003": "this object cannot be compiled",
        "AS004": "a compiled function cannot be pickled",
        "AS005": "a compiled function cannot be copied deeply",
        "AS006": "a call needs a new program, and compiling is forbidden",
        "AS007": "an option has an invalid value",
        "AS010": "a declaration has a syntax error",
        "AS011": "a declaration names an unknown argument or dim",
        "AS012": "declarations contradict one another",
        "AS020": "an invariant does not hold",
        "AS021": "a shape does not match its declaration",
        "AS022": "a memory layout does not match its declaration",
        "AS023": "an assumption about a size does not hold",
        "AS024": "your code branches on an oblivious size",
        "AS025": "your code branches on a data-dependent value",
        "AS040": "a program cannot be exported for all sizes",
        "AS041": "no exported program serves this call",
        "AS050": "an artifact is missing, truncated or altered",
        "AS051": "an artifact was made for another machine or version",
        "AS052": "an artifact has a different file format",
        "AS053": "an artifact is not signed by someone you trust",
        "AS054": "an artifact has an invalid structure",
        "AS055": "an artifact does not belong to this callable",
        "AS056": "this cannot be precompiled",
        "AS057": "ranks cannot share programs",
        "AS060": "the doctor has nothing to examine",
        "AS061": "an output file cannot be written",
    }
)


class Error(Exception):
    """The base of every error that anyshape raises itself.

    `what` says what happened; the rest is optional and is printed a line each: `where` (`x.shape[1]`, a file and line),
    the `value` now, the one it was `before`, and a `fix` that can be pasted.
    """

    code: str
    default_code: ClassVar[str] = "AS003"

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        value: object = None,
        before: object = None,
        fix: str | None = None,
        code: str | None = None,
    ) -> None:
        self.code = self.default_code if code is None else code
        if self.code not in CODES:
            raise ValueError(
                f"{self.code} is not a code of anyshape; add it to CODES and write docs/errors/{self.code}.md"
            )
        self.what, self.where, self.value, self.before, self.fix = what, where, value, before, fix
        super().__init__(self._text())

    def _text(self) -> str:
        lines = [f"{self.code}: {self.what}"]
        if self.where is not None:
            lines.append(f"  where: {self.where}")
        if self.value is not None:
            lines.append(f"  value: {self.value}" + (f" (before: {self.before})" if self.before is not None else ""))
        if self.fix is not None:
            lines.append("  fix:   " + self.fix.replace("\n", "\n         "))
        lines.append(f"  more:  {HELP} {self.code}")
        return plain_text.lines("\n".join(lines))

    def __str__(self) -> str:
        # Not Exception's own: a KeyError or an ImportError among the bases would print it another way.
        return self._text()

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), self.what, self.where, self.value, self.before, self.fix, self.code)


def _rebuild(kind: type[Error], what: str, where: Any, value: Any, before: Any, fix: Any, code: str) -> Error:
    return kind(what, where=where, value=value, before=before, fix=fix, code=code)


class UnsupportedTorchError(Error, ImportError):
    """The installed torch is outside the versions that anyshape holds on."""

    default_code = "AS001"


class MissingDependencyError(Error, ImportError):
    """A part of anyshape needs a package that is not installed."""

    default_code = "AS002"


class NotCompilableError(Error, TypeError):
    """Something was asked of a compiled function, or of `compile`, that cannot work."""

    default_code = "AS003"


class NewBehaviorError(Error, RuntimeError):
    """A call needs a new program, and `on_new_behavior="error"` forbids it."""

    default_code = "AS006"


class DeclarationError(Error, ValueError):
    """A declaration (`shapes`, `where`, `layout`, `hints`, ...) cannot be read or cannot be so."""

    default_code = "AS010"


class InvariantError(Error, ValueError):
    """A call breaks what was declared about it."""

    default_code = "AS020"


class AssumptionError(Error, RuntimeError):
    """Oblivious semantics: a call breaks what the one program was built on."""

    default_code = "AS023"


class BranchError(Error, RuntimeError):
    """Oblivious semantics: the user's own code branches on a size that may not be asked about."""

    default_code = "AS024"


class DataBranchError(Error, RuntimeError):
    """`fullgraph=True`, and the user's own code branches on a value that the graph itself computes."""

    default_code = "AS025"


class ExportError(Error, RuntimeError):
    """A function or module cannot be exported as one program for all sizes."""

    default_code = "AS040"


class ArtifactError(Error, ValueError):
    """A file of programs cannot be read, trusted or used here, or cannot be made."""

    default_code = "AS050"


class DoctorError(Error, ValueError):
    """There is nothing that the doctor could run or read."""

    default_code = "AS060"


class FileError(Error, OSError):
    """A file that the command line was given cannot be read or written."""

    default_code = "AS061"


class FallbackWarning(UserWarning):
    """A call ran eagerly because no program could be made for it; `f.fallbacks` counts every such call."""


# Where people find these, and what a traceback calls them: anyshape.InvariantError.
EXPORTED: Final = (
    ArtifactError,
    AssumptionError,
    BranchError,
    DataBranchError,
    DeclarationError,
    DoctorError,
    Error,
    ExportError,
    FallbackWarning,
    FileError,
    InvariantError,
    MissingDependencyError,
    NewBehaviorError,
    NotCompilableError,
    UnsupportedTorchError,
)
for _kind in EXPORTED:
    _kind.__module__ = "anyshape"


def missing(package: str, *, needed_for: str, extra: str | None = None) -> MissingDependencyError:
    """The error for an optional package that is not installed."""
    target = f"anyshape[{extra}]" if extra else package
    return MissingDependencyError(
        f"{needed_for} needs the package {package!r}, which is not installed", fix=f'pip install "{target}"'
    )


def require(package: str, *, needed_for: str, extra: str | None = None) -> None:
    """Raise now, before any work is done, where an optional package is not installed. It is not imported."""
    try:
        found = sys.modules[package] is not None if package in sys.modules else find_spec(package) is not None
    except (ImportError, ValueError):  # the parent of a dotted name is not there
        found = False
    if not found:
        raise missing(package, needed_for=needed_for, extra=extra)


def __getattr__(name: str) -> object:
    """The spelling of older code."""
    if name == "NewBehaviourError":
        warn_old_name("anyshape.NewBehaviourError", "anyshape.NewBehaviorError", stacklevel=3)
        return NewBehaviorError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def warn_old_name(old: str, new: str, *, stacklevel: int) -> None:
    """One warning, at the caller's line, for a name that is spelled another way now."""
    warnings.warn(f"{old} is called {new} now", DeprecationWarning, stacklevel=stacklevel)


def refuse_pickle(name: str) -> NotCompilableError:
    """The error for pickling a compiled function."""
    return NotCompilableError(
        f"a function compiled by anyshape cannot be pickled: its programs are machine code of this process ({name})",
        fix="pickle the original function or module, and call anyshape.compile on it where it is loaded",
        code="AS004",
    )


def refuse_precompile(what: str, value: str) -> ArtifactError:
    """The error for a program that cannot be written to a file."""
    fix = "f = anyshape.compile(fn) where it is used"
    return ArtifactError(f"this cannot be precompiled: {what}", value=value[:200], fix=fix, code="AS056")


def refuse_deepcopy(name: str) -> NotCompilableError:
    """The error for `copy.deepcopy` of a compiled function."""
    return NotCompilableError(
        f"a function compiled by anyshape cannot be copied deeply: its programs belong to the original ({name})",
        fix="copy.deepcopy the original function or module, and call anyshape.compile on the copy",
        code="AS005",
    )
