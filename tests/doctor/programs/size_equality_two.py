# expect: D103 y 0 anyshape
import torch


def f(x, y):
    return x.sum() + y.sum()  # here


g = torch.compile(f, backend="eager", dynamic=True)
for n, m in ((4, 4), (5, 5), (5, 6)):
    print(g(torch.ones(n, 3), torch.ones(m, 3)).sum().item())
