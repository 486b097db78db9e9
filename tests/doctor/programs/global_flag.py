# expect: D111 FAST - advice
import torch

FAST = True


def f(x):
    return x * 2 if FAST else x * 3  # here


g = torch.compile(f, backend="eager")
for FAST in (True, False):
    print(g(torch.ones(4)).sum().item())
