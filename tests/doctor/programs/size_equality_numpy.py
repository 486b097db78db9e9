# expect: D103 x 0 advice
import torch


def f(x):
    names = ["a"] * x.shape[0]  # here
    return x * len(names)


g = torch.compile(f, backend="eager", dynamic=True)
for n in (3, 4, 5):
    print(g(torch.ones(n, 4)).sum().item())
