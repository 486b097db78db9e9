# expect: D140 x 0 anyshape
import torch
from torch._dynamo.decorators import mark_unbacked


def f(x):
    room = torch.empty_strided((x.shape[0], 4), (5, 1)).zero_().view(-1, 2)  # here
    return room + x.sum()


g = torch.compile(f, backend="eager")
for n in (6, 4):
    x = torch.ones(n, 4)
    mark_unbacked(x, 0)
    try:
        print(g(x).sum().item())
    except RuntimeError:
        print("the view cannot be made")
