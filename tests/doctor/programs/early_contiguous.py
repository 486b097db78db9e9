# expect: D141 x 0 advice
import torch
from torch._dynamo.decorators import mark_unbacked


def f(x):
    y = x.t()
    return y + 1 if y.is_contiguous() else y - 1  # here


g = torch.compile(f, backend="eager")
for n in (6, 4):
    x = torch.ones(n, 4)
    mark_unbacked(x, 0)
    print(g(x).sum().item())
