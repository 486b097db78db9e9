# expect: D105 x - contiguous
import torch


def f(x):
    return x.sin() + 1  # here


g = torch.compile(f, backend="eager")
print(g(torch.ones(4, 4)).sum().item())
print(g(torch.ones(4, 4).t()).sum().item())
print(g(torch.ones(4, 8)[:, ::2]).sum().item())
