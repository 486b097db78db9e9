# expect: D114 mask - advice
import torch


def f(x, mask):
    return x + 1 if mask is None else x * mask  # here


g = torch.compile(f, backend="eager")
print(g(torch.ones(4), None).sum().item())
print(g(torch.ones(4), torch.ones(4)).sum().item())
