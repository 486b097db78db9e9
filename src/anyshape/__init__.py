"""anyshape: compile once, exactly eager, for every shape.

This file is the index: every public name, and where it lives.
"""

from anyshape._torch import versions as _versions

_versions.check()  # before anything else of torch's insides is touched

from anyshape import testing  # noqa: E402
from anyshape._version import __version__  # noqa: E402
from anyshape.compiler import compile, warm_up  # noqa: E402
from anyshape.coverage import Coverage, check  # noqa: E402
from anyshape.errors import (  # noqa: E402
    AssumptionError,
    BranchError,
    DeclarationError,
    Error,
    FallbackWarning,
    InvariantError,
    NewBehaviourError,
    NotCompilableError,
    UnsupportedTorchError,
)
from anyshape.explain import explain  # noqa: E402
from anyshape.marks import mark_dynamic, mark_static, mark_unbacked  # noqa: E402
from anyshape.programs import Predicate, Program, Variant  # noqa: E402

__all__ = [
    "AssumptionError",
    "BranchError",
    "Coverage",
    "DeclarationError",
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
    "testing",
    "warm_up",
]
