# expect: D105 mask - contiguous
import torch


def f(x, mask):
    return x * mask  # here


g = torch.compile(f, backend="eager")
x = torch.ones(3, 5)
print(g(x, torch.ones(3, 5)).sum().item())
print(g(x, torch.ones(3, 1).expand(3, 5)).sum().item())
