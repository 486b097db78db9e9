# expect: D140 x 0 anyshape
import torch
from torch._dynamo.decorators import mark_unbacked


def f(x):
    return x.as_strided((x.shape[0], 2), (4, 1)).view(-1) + 1  # here


g = torch.compile(f, backend="eager")
for n in (6, 4):
    x = torch.ones(n, 4)
    mark_unbacked(x, 0)
    try:
        print(g(x).sum().item())
    except RuntimeError:
        print("the view cannot be made")
