# expect: D107 k - advice
import torch


def f(x, k):
    for _ in range(k):  # here
        x = x * 2
    return x


g = torch.compile(f, backend="eager", dynamic=True)
for k in (2, 3, 4):
    print(g(torch.ones(4), k).sum().item())
