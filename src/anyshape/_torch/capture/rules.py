"""Tracing the rule of a function (`anyshape.ops`) in the place of its call.

Owns the seam: a call of a function that has a rule is traced as the rule's own Python instead. What the rules are is
told in `anyshape.ops`.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.variables.builder import SourcelessBuilder
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.lazy import LazyVariableTracker
from torch._dynamo.variables.lists import BaseListVariable
from torch._dynamo.variables.tensor import SymNodeVariable, TensorVariable

from anyshape._torch.repairs.registry import repair
from anyshape._torch.symbolic.shape_env import FreeShapeEnv


def concerns_oblivious(args: Any) -> bool:
    """Whether a call is about a tensor with a size that may not be asked about."""
    for value in args:
        fake = value.proxy.node.meta.get("example_value") if isinstance(value, TensorVariable) else None
        for size in getattr(fake, "shape", ()):
            env = size.node.shape_env if isinstance(size, torch.SymInt) else None
            if isinstance(env, FreeShapeEnv) and env.recording.oblivious.concerns(size.node.expr):
                return True
    return False


def is_given_a_size(args: Any) -> bool:
    """Whether a call is given a number that is symbolic, by itself or among others."""
    return any(
        isinstance(value, SymNodeVariable) or (isinstance(value, BaseListVariable) and is_given_a_size(value.items))
        for value in map(LazyVariableTracker.realize_all, args)
    )


def is_given_a_float(args: Any) -> bool:
    """Whether a call is given a float that is symbolic."""
    given = map(LazyVariableTracker.realize_all, args)
    return any(isinstance(value, SymNodeVariable) and value.python_type() is float for value in given)


def _is_beyond_kernels(value: Any) -> bool:
    number = value.as_python_constant() if isinstance(value, ConstantVariable) else None
    return type(number) is int and not -(1 << 63) <= number < 1 << 63


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """Rules by what they stand for. `when` is asked about the arguments of a call; where not, it is traced as ever."""

    functions: Mapping[Any, Any]
    when: Callable[[Any], bool] = lambda args: True

    @functools.cached_property
    def codes(self) -> set[types.CodeType]:
        return {rule.__code__ for rule in self.functions.values()}

    @functools.cached_property
    def methods(self) -> dict[str, Any]:
        """Of the tensor methods of the same name."""
        return {
            name: rule
            for f, rule in self.functions.items()
            if getattr(torch, name := str(getattr(f, "__name__", "")), None) is f and hasattr(torch.Tensor, name)
        }

    def holds(self, rule: Any, tx: Any, args: Any) -> bool:
        """Not inside a rule: what that calls is traced as ever. Nor with an int that no kernel takes."""
        if rule is None or getattr(tx, "f_code", None) in self.codes or any(map(_is_beyond_kernels, args)):
            return False
        return self.when(args)


_ABOUT: Any = {
    "phase": "capture",
    "kind": "meaning",
    "symptom": "A call is answered for one size at a time, or not at all.",
    "cause": "Dynamo traces calls of torch by what they do for the sizes at hand.",
    "cure": "A function that has a rule is traced as the rule's own Python.",
    "goes": "with the rules, which `anyshape.ops` tells of one by one",
}


@repair(
    "torch._dynamo.variables.torch:TorchInGraphFunctionVariable.call_function",
    "torch._dynamo.variables.functions:SkipFunctionVariable.call_function",
    "torch._dynamo.variables.user_defined:UserDefinedClassVariable.call_function",
    scope="capture",
    over=("deferred_calls.function",),
    **_ABOUT,
)
def by_rule(stock: Any, *, rules: Sequence[Table]) -> Any:
    for table in rules:
        stock = _function_by(table, stock)
    return stock


def _function_by(table: Table, stock: Any) -> Any:
    def call(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(self.value, types.BuiltinFunctionType):
            args, kwargs = _plain_truths(tx, args, kwargs)
        rule = table.functions.get(self.value) if _hashable(self.value) else None
        if "out" in kwargs or not table.holds(rule, tx, [*args, *kwargs.values()]):
            return stock(self, tx, args, kwargs)
        return SourcelessBuilder.create(tx, rule).call_function(tx, list(args), dict(kwargs))

    return call


@repair(
    "torch._dynamo.variables.functions:UserFunctionVariable.call_function",
    scope="capture",
    **_ABOUT,
)
def python_by_rule(stock: Any, *, rules: Sequence[Table]) -> Any:
    """A function of torch's that is written in Python, and would be traced through."""
    for table in rules:
        stock = _python_by(table, stock)
    return stock


def _python_by(table: Table, stock: Any) -> Any:
    def call(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        rule = table.functions.get(self.fn) if type(self.fn) is types.FunctionType else None
        if not table.holds(rule, tx, [*args, *kwargs.values()]):
            return stock(self, tx, args, kwargs)
        return SourcelessBuilder.create(tx, rule).call_function(tx, list(args), dict(kwargs))

    return call


@repair(
    "torch._dynamo.variables.tensor:TensorVariable.call_method",
    scope="capture",
    over=("steps.call_method",),
    **_ABOUT,
)
def method_by_rule(stock: Any, *, rules: Sequence[Table]) -> Any:
    for table in rules:
        stock = _method_by(table, stock)
    return stock


def _method_by(table: Table, stock: Any) -> Any:
    def call(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        args, kwargs = _plain_truths(tx, args, kwargs)
        rule = table.methods.get(name)
        if not table.holds(rule, tx, [self, *args, *kwargs.values()]):
            return stock(self, tx, name, args, kwargs)
        return SourcelessBuilder.create(tx, rule).call_function(tx, [self, *args], dict(kwargs))

    return call


def _plain_truths(tx: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Whether a size is above 1 (`is_causal=n > 1`) is no argument for a kernel, which wants a bool: asked here."""

    def plain(value: Any) -> Any:
        if isinstance(value, SymNodeVariable) and isinstance(value.sym_num, torch.SymBool):
            return ConstantVariable.create(value.evaluate_expr(tx.output))
        return value

    return [plain(a) for a in args], {k: plain(v) for k, v in kwargs.items()}


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
