# expect: D121 x 0 anyshape
import torch
from torch._dynamo.decorators import mark_unbacked


def f(x):
    y = x * 2
    return y.roll(1, 0)  # here


g = torch.compile(f, backend="eager")
for n in (6, 4):
    x = torch.ones(n, 4)
    mark_unbacked(x, 0)
    print(g(x).sum().item())
