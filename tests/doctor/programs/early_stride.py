# expect: D141 x 0 advice
import torch
from torch._dynamo.decorators import mark_unbacked


def f(x):
    y = x.t().contiguous()
    return y + 1 if y.stride(0) == 4 else y - 1  # here


g = torch.compile(f, backend="eager")
for n in (6, 6):
    x = torch.ones(n, 4)
    mark_unbacked(x, 0)
    print(g(x).sum().item())
