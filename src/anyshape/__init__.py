"""anyshape: compile once, exactly eager, for every shape.

This file is the index: every public name, and where it lives. A name is imported when it is first asked for, so that
`anyshape --help` does not wait for torch, and a process that only loads artifacts not for the compiler's modules.
"""

from typing import TYPE_CHECKING

from anyshape import library_names
from anyshape._version import __version__
from anyshape.explain import explain  # its module has the same name, so it must be here first

if TYPE_CHECKING:
    from anyshape import testing
    from anyshape.ahead.loading import load
    from anyshape.ahead.precompile import Artifact, precompile
    from anyshape.compiler import CompiledFunction, compile, warm_up
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
        FileError,
        InvariantError,
        MissingDependencyError,
        NewBehaviorError,
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
    "compiler": ("CompiledFunction", "compile", "warm_up"),
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
        "FileError",
        "InvariantError",
        "MissingDependencyError",
        "NewBehaviorError",
        "NotCompilableError",
        "UnsupportedTorchError",
    ),
    "exported_behaviors": ("ExportedBehavior", "ExportedBehaviors"),
    "exports": ("export",),
    "marks": ("mark_dynamic", "mark_static", "mark_unbacked"),
    "observing": ("observe",),
    "programs": ("Predicate", "Program", "Variant"),
}
library_names.make_known()  # `backend="anyshape"` is read by libraries before torch sees it
_HOME = {name: module for module, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:  # a type checker knows the names above, and that there are no others

    def __getattr__(name):
        """A public name, imported now."""
        import importlib

        if name == "testing":
            return importlib.import_module("anyshape.testing")
        if name == "NewBehaviourError":  # the old spelling; no place in the index
            from anyshape import errors

            errors.warn_old_name("anyshape.NewBehaviourError", "anyshape.NewBehaviorError", stacklevel=3)
            return errors.NewBehaviorError
        if name not in _HOME:
            raise AttributeError(f"module 'anyshape' has no attribute {name!r}")
        if _HOME[name] not in ("errors", "programs"):
            importlib.import_module("anyshape._torch")  # says it if torch is missing or not supported
        value = globals()[name] = getattr(importlib.import_module(f"anyshape.{_HOME[name]}"), name)
        return value

    def __dir__():
        return sorted(__all__)


__all__ = [
    "Artifact",
    "ArtifactError",
    "AssumptionError",
    "BranchError",
    "CompiledFunction",
    "Coverage",
    "DataBranchError",
    "DeclarationError",
    "DoctorError",
    "Error",
    "ExportError",
    "ExportedBehavior",
    "ExportedBehaviors",
    "FallbackWarning",
    "FileError",
    "InvariantError",
    "MissingDependencyError",
    "NewBehaviorError",
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
