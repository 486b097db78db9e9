# expect: D111 count - environment
import torch


def make():
    count = 2

    def f(x):
        return x * count  # here

    def bump():
        nonlocal count
        count += 1

    return f, bump


f, bump = make()
g = torch.compile(f, backend="eager")
for _ in range(3):
    print(g(torch.ones(4)).sum().item())
    bump()
