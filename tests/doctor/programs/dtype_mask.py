# expect: D108 mask - advice
import torch


@torch.compile(backend="eager")
def f(x, mask):
    return x.masked_fill(mask == 0, 0)  # here


x = torch.ones(4)
print(f(x, torch.ones(4, dtype=torch.bool)).sum().item())
print(f(x, torch.ones(4, dtype=torch.int64)).sum().item())
