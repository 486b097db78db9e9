"""Types of public options, for type checkers and editors.

Owns aliases for type checkers and editors. What a value means, and its check when it comes, is `declaration/options`'.
Knows nothing of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Literal, Protocol, TypeAlias, TypedDict

Layout: TypeAlias = Literal["contiguous", "dense", "example", "any"]
Semantics: TypeAlias = Literal["eager", "oblivious"]
OnNewBehavior: TypeAlias = Literal["compile", "eager", "error"]
OnBranch: TypeAlias = Literal["error", "break"]
Distributed: TypeAlias = Literal["every-rank", "one-rank"]
Mode: TypeAlias = Literal["default", "lite", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
Weights: TypeAlias = Literal["live", "embed"]


class SpecOfTorch(Protocol):
    """torch's ShapesSpec or ParamsSpec, where torch has them."""

    def to_jsonable(self) -> Mapping[str, object]: ...


# A list or a tuple, and not a Sequence: one text is a sequence of texts too.
Clauses: TypeAlias = list[str] | tuple[str, ...]
Shapes: TypeAlias = Mapping[str, str] | SpecOfTorch
Layouts: TypeAlias = Layout | Mapping[str, Layout]
Hints: TypeAlias = Mapping[str, int | Sequence[int]]
Specialize: TypeAlias = Literal["hot", "buckets", "never"] | Clauses
Backend: TypeAlias = str | Callable[..., object]
Address: TypeAlias = str | PathLike[str]
# bytes for HMAC-SHA-256, or one of cryptography's Ed25519 keys, which need not be installed.
Key: TypeAlias = object


class CompileOptions(TypedDict, total=False):
    """The keywords of `anyshape.compile`, in its order."""

    shapes: Shapes | None
    where: Clauses | None
    layout: Layouts | None
    hints: Hints | None
    specialize: Specialize | None
    semantics: Semantics
    on_new_behavior: OnNewBehavior
    on_branch: OnBranch
    frozen: bool
    background: bool
    fullgraph: bool
    dynamic: bool | None
    backend: Backend | None
    mode: Mode | None
    options: Mapping[str, object] | None
    name: str | None
    disable: bool
    recompile_limit: int | None
    isolate_recompiles: bool
    in_place: bool
    distributed: Distributed
    artifacts: Address | None
