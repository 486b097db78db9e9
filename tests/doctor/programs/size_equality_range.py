# expect: D103 x 0 advice
import torch


def f(x):
    total = 0
    for i in range(x.shape[0]):  # here
        total = total + x[i]
    return total


g = torch.compile(f, backend="eager", dynamic=True)
for n in (3, 4, 5):
    print(g(torch.ones(n, 4)).sum().item())
