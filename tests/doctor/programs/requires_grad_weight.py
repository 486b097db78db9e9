# expect: D109 weight - advice
import torch


def f(x, weight):
    return x @ weight  # here


g = torch.compile(f, backend="eager")
weight = torch.ones(4, 4)
print(g(torch.ones(2, 4), weight).sum().item())
print(g(torch.ones(2, 4), weight.requires_grad_()).sum().item())
