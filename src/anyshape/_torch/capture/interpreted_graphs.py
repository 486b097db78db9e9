"""Graphs that Dynamo interprets while it captures (`autograd.Function`): their questions are those of their nodes.

Owns one repair: of an `autograd.Function` Dynamo runs the forward pass that it has captured once more, to see what it
gives (variables/higher_order_ops.py, 2.11 to 2.15). What that run asks about sizes is asked by its nodes, as when they
were captured, and not by the function.
"""

from __future__ import annotations

import types
from typing import Any

import torch
from torch._guards import TracingContext

from anyshape._torch.capture import nodes
from anyshape._torch.repairs.registry import repair
from anyshape._torch.symbolic.shape_env import FreeShapeEnv


@repair(
    "torch.fx.interpreter:Interpreter.run_node",
    scope="capture",
    phase="capture",
    kind="meaning",
    symptom="An `autograd.Function` has programs of its own for sizes 0 and 1.",
    cause="variables/higher_order_ops.py runs its forward pass once more, outside of the nodes of the graph.",
    cure="What that run asks is asked by its nodes.",
    goes="when higher_order_ops.py takes the results of the nodes that it has captured",
)
def run_node(stock: Any) -> Any:
    def run(self: Any, node: Any) -> Any:
        env = getattr(getattr(TracingContext.try_get(), "fake_mode", None), "shape_env", None)
        plain = type(self) is torch.fx.Interpreter and node.op in ("call_function", "call_method")
        if not plain or not isinstance(env, FreeShapeEnv) or not env.recording.is_between_nodes:
            return stock(self, node)
        with self._set_current_node(node):
            args, kwargs = self.fetch_args_kwargs_from_env(node)
            return nodes.run_node(types.SimpleNamespace(shape_env=env), node, args, kwargs, None)

    return run
