# expect: D117 - - advice
import torch


def f(x):  # here
    return x.tanh() * 2


g = torch.compile(f, backend="eager")
x = torch.ones(4)
print(g(x).sum().item())
torch.set_default_dtype(torch.float64)
print(g(x).sum().item())
torch.set_default_dtype(torch.float32)
