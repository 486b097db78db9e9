"""Cases on another device.

Owns the source of a case whose tensors are made there, too: those that it makes itself without saying where.
"""

from __future__ import annotations

import ast

from anyshape.fuzz.case import Case

_MAKERS = {"arange", "empty", "eye", "full", "linspace", "ones", "rand", "randn", "tensor", "zeros"}
_MAKERS |= {"fftfreq", "hann_window", "logspace", "randint", "randperm", "tril_indices", "triu_indices"}


class _There(ast.NodeTransformer):
    def __init__(self, device: str) -> None:
        self.device = device

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = ast.unparse(node.func).removeprefix("torch.fft.").removeprefix("torch.")
        told = any(keyword.arg == "device" for keyword in node.keywords)
        if name in _MAKERS and not told:
            node.keywords.append(ast.keyword("device", ast.Constant(self.device)))
        return node


def source(case: Case, device: str) -> str:
    """The function as Python, for tensors on `device`."""
    if device == "cpu":
        return case.source
    return ast.unparse(_There(device).visit(ast.parse(case.source))) + "\n"
