# expect: D122 - - config
import torch


def f(x):
    y = x * 2
    kept = torch.nonzero(y)  # here
    return y[kept].sum()


g = torch.compile(f, backend="eager")
print(g(torch.ones(4)).item())
