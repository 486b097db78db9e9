# expect: D101 x 0 environment
import torch


def f(x):
    return x.sin() * 2  # here


g = torch.compile(f, backend="eager", dynamic=True)
for n in (8, 1, 5):
    print(g(torch.ones(n, 4)).sum().item())
