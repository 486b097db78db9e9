# expect: D109 - - advice
import torch


def f(x):  # here
    return x.tanh() * 2


g = torch.compile(f, backend="eager")
x = torch.ones(4)
print(g(x).sum().item())
with torch.no_grad():
    print(g(x).sum().item())
