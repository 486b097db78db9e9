# expect: D107 steps - advice
import torch


def f(x, *, steps):
    for _ in range(steps):  # here
        x = x * 2
    return x


g = torch.compile(f, backend="eager")
for steps in (1, 2, 3, 4):
    print(g(torch.ones(3), steps=steps).sum().item())
