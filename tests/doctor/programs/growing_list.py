# expect: D113 cache - advice
import torch


def f(x, cache):
    return x + sum(c.sum() for c in cache)  # here


g = torch.compile(f, backend="eager")
cache = []
for _ in range(4):
    cache.append(torch.ones(2))
    print(g(torch.ones(4), cache).sum().item())
