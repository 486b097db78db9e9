# expect: D107 n - environment
import torch


def f(x, n):
    return x * n  # here


g = torch.compile(f, backend="eager")
for n in (3, 4, 5):
    print(g(torch.ones(4), n).sum().item())
