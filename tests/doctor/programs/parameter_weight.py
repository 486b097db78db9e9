# expect: D112 w - plain
import torch


def f(x, w):
    return x * w  # here


g = torch.compile(f, backend="eager")
w = torch.nn.Parameter(torch.ones(4), requires_grad=False)
print(g(torch.ones(4), w).sum().item())
print(g(torch.ones(4), w.detach()).sum().item())
