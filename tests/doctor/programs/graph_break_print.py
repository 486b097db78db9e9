# expect: D122 - - advice
import torch


def f(x):
    y = x + 1
    print("inside")  # here
    return y * 2


g = torch.compile(f, backend="eager")
print(g(torch.ones(4)).sum().item())
