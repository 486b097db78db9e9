"""anyshape: compile once, exactly eager, for every shape.

This file is the index: every public name, and where it lives.
"""

from typing import TYPE_CHECKING as _TYPES

from anyshape._torch import versions as _versions
from anyshape._version import __version__

if _versions.is_installed() or _TYPES:
    _versions.check()  # before anything else of torch's insides is touched

    from anyshape import testing
    from anyshape.compiler import compile, warm_up
    from anyshape.coverage import Coverage, check
    from anyshape.errors import (
        AssumptionError,
        BranchError,
        DataBranchError,
        DeclarationError,
        DoctorError,
        Error,
        FallbackWarning,
        InvariantError,
        NewBehaviourError,
        NotCompilableError,
        UnsupportedTorchError,
    )
    from anyshape.explain import explain
    from anyshape.marks import mark_dynamic, mark_static, mark_unbacked
    from anyshape.observing import observe
    from anyshape.programs import Predicate, Program, Variant
else:

    def __getattr__(name: str) -> object:
        """Without torch there is `anyshape doctor --from`, and this for everything else."""
        if name in __all__:
            _versions.check()
        raise AttributeError(f"module 'anyshape' has no attribute {name!r}")


__all__ = [
    "AssumptionError",
    "BranchError",
    "Coverage",
    "DataBranchError",
    "DeclarationError",
    "DoctorError",
    "Error",
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
    "mark_dynamic",
    "mark_static",
    "mark_unbacked",
    "observe",
    "testing",
    "warm_up",
]
