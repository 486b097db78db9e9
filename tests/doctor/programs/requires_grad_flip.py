# expect: D109 x - advice
import torch


def f(x):
    return (x * x).sum()  # here


g = torch.compile(f, backend="eager")
print(g(torch.ones(4)).item())
print(g(torch.ones(4, requires_grad=True)).item())
