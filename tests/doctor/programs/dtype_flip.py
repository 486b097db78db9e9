# expect: D108 x - advice
import torch


def f(x):
    return x * 2 + 1  # here


g = torch.compile(f, backend="eager")
for dtype in (torch.float32, torch.float64):
    print(g(torch.ones(4, dtype=dtype)).sum().item())
