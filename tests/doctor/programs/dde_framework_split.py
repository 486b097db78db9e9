# expect: D121 x 0 anyshape
import torch
from torch._dynamo.decorators import mark_unbacked


def f(x):
    return x.tensor_split(2)[0] + 1  # here


g = torch.compile(f, backend="eager")
for n in (6, 6, 6):
    x = torch.ones(n, 4)
    mark_unbacked(x, 0)
    print(g(x).sum().item())
