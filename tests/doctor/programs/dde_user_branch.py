# expect: D120 x 0 advice
import torch
from torch._dynamo.decorators import mark_unbacked


def f(x):
    if x.shape[0] > 3:  # here
        return x + 1
    return x - 1


g = torch.compile(f, backend="eager")
for n in (5, 2, 7):
    x = torch.ones(n, 4)
    mark_unbacked(x, 0)
    print(g(x).sum().item())
