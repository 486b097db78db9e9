# expect: D104 x 0 advice
import torch


def f(x):
    if x.shape[0] > 6:  # here
        return x.sum(0)
    return x.mean(0)


g = torch.compile(f, backend="eager", dynamic=True)
for n in (4, 8, 5):
    print(g(torch.ones(n, 4)).sum().item())
