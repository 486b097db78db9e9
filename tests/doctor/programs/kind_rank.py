# expect: D114 x - advice
import torch


def f(x):
    return x.sin().sum(-1)  # here


g = torch.compile(f, backend="eager")
print(g(torch.ones(4)).sum().item())
print(g(torch.ones(2, 4)).sum().item())
