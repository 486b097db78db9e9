"""A user's script with ten mistakes. Read by type checkers, never run: `# wrong` marks the lines they must refuse."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import nn

import anyshape

if TYPE_CHECKING:
    from typing_extensions import assert_type


@anyshape.compile
def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor


@anyshape.compile(shapes={"x": "batch 16"}, where=["batch <= 64"], hints={"batch": [1, 8]}, mode="reduce-overhead")
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


class Net(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.bias()

    def bias(self) -> torch.Tensor:
        return torch.zeros(16)

    @anyshape.compile
    def head(self, x: torch.Tensor) -> int:
        return x.dim()


x = torch.ones(3, 16)
net = anyshape.compile(Net())
compiled: Callable[[torch.Tensor], torch.Tensor] = double
artifact = anyshape.precompile(double, (x,))
if TYPE_CHECKING:
    assert_type(scale(x, 2.0), torch.Tensor)
    assert_type(net, Net)
    assert_type(net.bias(), torch.Tensor)
    assert_type(net.head(x), int)
    assert_type(scale.programs, tuple[anyshape.Program, ...])
    assert_type(scale.programs[0].behavior, str)
    assert_type(double.fallbacks, dict[str, int])
    assert_type(anyshape.export(net, (x,)), torch.export.ExportedProgram)
    assert_type(anyshape.export(net, (x,), behaviors="all"), anyshape.ExportedBehaviors)
    assert_type(anyshape.load("model.any", net), Net)
    assert_type(anyshape.load(artifact, double)(x), torch.Tensor)
    assert_type(artifact.programs, tuple[anyshape.Program, ...])

scale(x)  # wrong: factor is missing
scale(x, "2")  # wrong: factor is a float
double(x).foo()  # wrong: a tensor has no foo
net.head("x")  # wrong: x is a tensor
anyshape.compile(Net(), semantics="obliviuos")  # wrong: no such word
anyshape.compile(Net(), where="batch <= 64")  # wrong: a list of clauses
anyshape.compile(Net(), shape={"x": "batch 16"})  # wrong: the option is called shapes
anyshape.compile(3)  # wrong: neither a function nor a module
anyshape.precompile(double, x)  # wrong: a tuple of arguments
anyshape.mark_dynamic(x, "batch")  # wrong: dims are numbers
