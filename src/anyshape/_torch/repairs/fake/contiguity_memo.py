"""Memoized contiguity of fake tensors, invalidated so that each caller's question is recorded.

Owns one repair: a tensor keeps the answers about its layout (is it contiguous, has it elements), and who asks next
would not be seen to ask. Being given its own sizes and strides once more makes it forget them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from anyshape._torch.repairs.registry import repair
from anyshape._torch.symbolic.shape_env import FreeShapeEnv


def forget_answers(tensor: Any) -> None:
    """Have the tensor ask again."""
    if type(tensor) is not FakeTensor or tensor.layout is not torch.strided or tensor.is_inference():
        return
    env, numbers = tensor.fake_mode.shape_env, (*tensor.shape, *tensor.stride(), tensor.storage_offset())
    if not isinstance(env, FreeShapeEnv) or free_unbacked_symbols(numbers):
        return
    symbols = [n.node for n in numbers if isinstance(n, torch.SymInt)]
    if not symbols or any(node.maybe_as_int() is not None for node in symbols):
        return  # a size that is known by now would be a number from then on, and a guard of torch's
    preserved = torch.autograd._unsafe_preserve_version_counter(tensor)
    # A transform of functorch's would take it for a write to what the function that it transforms has captured.
    outside = temporarily_clear_interpreter_stack()
    with outside, _nothing_computed(env), torch.no_grad(), preserved, in_kernel_invocation_manager(tensor.fake_mode):
        tensor.as_strided_(tensor.shape, tensor.stride(), tensor.storage_offset())


def _for_others(name: str, result: Callable[[Any], Any]) -> Callable[..., Any]:
    stock = getattr(SymNode, name)

    def method(self: Any, *args: Any) -> Any:
        return result(self) if getattr(self.shape_env, "taken_on_trust", False) else stock(self, *args)

    return method


_RESULTS: dict[Callable[[Any], Any], tuple[str, ...]] = {
    lambda node: node: ("add", "sub", "mul", "sym_max", "sym_min"),
    lambda node: node.wrap_bool(True): ("eq", "ne", "lt", "le", "gt", "ge", "and_", "or_"),
    lambda node: True: ("guard_bool", "expect_true", "statically_known_true", "guard_or_false", "guard_or_true"),
}
_ELSEWHERE_TOO = ("sym_max", "expect_true")  # names that a capture replaces, and this on top
METHODS = {n: _for_others(n, result) for result, names in _RESULTS.items() for n in names if hasattr(SymNode, n)}


@repair(
    *(f"torch.fx.experimental.sym_node:SymNode.{name}" for name in METHODS if name not in _ELSEWHERE_TOO),
    scope="forgetting",
    phase="fake run",
    broken="2.11-2.15",
    by_itself=True,  # for a moment, for every value that is looked at
    symptom="Who asks a fake tensor for its layout after another has asked is not seen to ask.",
    cause="TensorImpl.h:SymbolicShapeMeta keeps the answers.",
    cure="Being given its own sizes and strides once more makes it forget them; nothing is computed meanwhile.",
    goes="when a fake tensor can be told to forget",
)
@contextlib.contextmanager
def _nothing_computed(env: FreeShapeEnv) -> Iterator[None]:
    """Whether a tensor fits the memory that it has is not worked out in symbols: whatever is asked, it does."""
    before = {name: SymNode.__dict__[name] for name in METHODS}
    env.taken_on_trust = True
    try:
        for name, method in METHODS.items():
            setattr(SymNode, name, method)
        yield
    finally:
        for name, method in before.items():
            setattr(SymNode, name, method)
        env.taken_on_trust = False
