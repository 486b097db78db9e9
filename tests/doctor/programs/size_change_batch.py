# expect: D102 x 0 environment
import torch


def f(x):
    return torch.relu(x) + 1  # here


g = torch.compile(f, backend="eager")
for n in (8, 9, 10):
    print(g(torch.ones(n, 4)).sum().item())
