"""anyshape: compile once, exactly eager, for every shape.

This file is the index: every public name, and where it lives. A name is imported when it is first asked for, so that a
process that only loads artifacts does not wait for the compiler's modules.
"""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPES

from anyshape._torch import versions as _versions
from anyshape._version import __version__
from anyshape.explain import explain  # its module has the same name, so it must be here first

if _versions.is_installed():
    _versions.check()  # before anything else of torch's insides is touched

if _TYPES:
    from anyshape import testing
    from anyshape.ahead.loading import load
    from anyshape.ahead.precompile import Artifact, precompile
    from anyshape.compiler import compile, warm_up
    from anyshape.coverage import Coverage, check
    from anyshape.errors import (
        ArtifactError,
        AssumptionError,
        BranchError,
        DataBranchError,
        DeclarationError,
        DoctorError,
        Error,
        ExportError,
        FallbackWarning,
        InvariantError,
        NewBehaviourError,
        NotCompilableError,
        UnsupportedTorchError,
    )
    from anyshape.exported_behaviors import ExportedBehavior, ExportedBehaviors
    from anyshape.exports import export
    from anyshape.marks import mark_dynamic, mark_static, mark_unbacked
    from anyshape.observing import observe
    from anyshape.programs import Predicate, Program, Variant

# The same for Python: the module of each name above.
_HOMES = {
    "ahead.loading": ("load",),
    "ahead.precompile": ("Artifact", "precompile"),
    "compiler": ("compile", "warm_up"),
    "coverage": ("Coverage", "check"),
    "errors": (
        "ArtifactError",
        "AssumptionError",
        "BranchError",
        "DataBranchError",
        "DeclarationError",
        "DoctorError",
        "Error",
        "ExportError",
        "FallbackWarning",
        "InvariantError",
        "NewBehaviourError",
        "NotCompilableError",
        "UnsupportedTorchError",
    ),
    "exported_behaviors": ("ExportedBehavior", "ExportedBehaviors"),
    "exports": ("export",),
    "marks": ("mark_dynamic", "mark_static", "mark_unbacked"),
    "observing": ("observe",),
    "programs": ("Predicate", "Program", "Variant"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """A public name, imported now."""
    if name in __all__:
        if not _versions.is_installed():
            _versions.check()  # without torch there is `anyshape doctor --from`, and an error for everything else
        if name == "testing":
            return _importlib.import_module("anyshape.testing")
        value = getattr(_importlib.import_module(f"anyshape.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'anyshape' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "Artifact",
    "ArtifactError",
    "AssumptionError",
    "BranchError",
    "Coverage",
    "DataBranchError",
    "DeclarationError",
    "DoctorError",
    "Error",
    "ExportError",
    "ExportedBehavior",
    "ExportedBehaviors",
    "FallbackWarning",
    "InvariantError",
    "NewBehaviourError",
    "NotCompilableError",
    "Predicate",
    "Program",
    "UnsupportedTorchError",
    "Variant",
    "__version__",
    "check",
    "compile",
    "explain",
    "export",
    "load",
    "mark_dynamic",
    "mark_static",
    "mark_unbacked",
    "observe",
    "precompile",
    "testing",
    "warm_up",
]
