"""Giving a torch function explicit semantics while a capture runs.

Owns the seam: a call of a function that has a rule is traced as the rule's own Python instead. What the rules are is
told in `anyshape.ops`.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch._dynamo.variables.builder import SourcelessBuilder
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.functions import SkipFunctionVariable, UserFunctionVariable
from torch._dynamo.variables.lazy import LazyVariableTracker
from torch._dynamo.variables.lists import BaseListVariable
from torch._dynamo.variables.tensor import SymNodeVariable, TensorVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch._dynamo.variables.user_defined import UserDefinedClassVariable

from anyshape._torch.shape_env import FreeShapeEnv


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


@contextlib.contextmanager
def patches(rules: dict[Any, Any], *, when: Callable[[Any], bool] = lambda args: True) -> Iterator[None]:
    """Calls of the functions in `rules`, and of the tensor methods of the same name, are traced as their rule.

    `when` is asked about the arguments of a call; where it says no, the call is traced as ever.
    """
    codes = {rule.__code__ for rule in rules.values()}
    functions = dict(rules)
    methods = {
        name: rule
        for f, rule in rules.items()
        if getattr(torch, name := str(getattr(f, "__name__", "")), None) is f and hasattr(torch.Tensor, name)
    }
    call_method = TensorVariable.call_method

    def inside_a_rule(tx: Any) -> bool:
        return getattr(tx, "f_code", None) in codes

    def by_rule(kind: type) -> Callable[..., Any]:
        call_function = kind.call_function  # type: ignore[attr-defined]

        def call(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
            if isinstance(self.value, types.BuiltinFunctionType):
                args, kwargs = _plain_truths(tx, args, kwargs)
            rule = functions.get(self.value) if _hashable(self.value) else None
            if rule is None or "out" in kwargs or inside_a_rule(tx) or not when([*args, *kwargs.values()]):
                return call_function(self, tx, args, kwargs)
            return SourcelessBuilder.create(tx, rule).call_function(tx, list(args), dict(kwargs))

        return call

    call_python = UserFunctionVariable.call_function

    def by_rule_for_python(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        """A function of torch's that is written in Python, and would be traced through."""
        rule = functions.get(self.fn) if type(self.fn) is types.FunctionType else None
        if rule is None or inside_a_rule(tx) or not when([*args, *kwargs.values()]):
            return call_python(self, tx, args, kwargs)
        return SourcelessBuilder.create(tx, rule).call_function(tx, list(args), dict(kwargs))

    def by_rule_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        args, kwargs = _plain_truths(tx, args, kwargs)
        rule = methods.get(name)
        if rule is None or inside_a_rule(tx) or not when([self, *args, *kwargs.values()]):
            return call_method(self, tx, name, args, kwargs)
        return SourcelessBuilder.create(tx, rule).call_function(tx, [self, *args], dict(kwargs))

    with contextlib.ExitStack() as stack:
        for kind in (TorchInGraphFunctionVariable, SkipFunctionVariable, UserDefinedClassVariable):
            stack.enter_context(mock.patch.object(kind, "call_function", by_rule(kind)))
        stack.enter_context(mock.patch.object(UserFunctionVariable, "call_function", by_rule_for_python))
        stack.enter_context(mock.patch.object(TensorVariable, "call_method", by_rule_method))
        yield


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
