# expect: D111 SCALE - environment
import torch

SCALE = 2


def f(x):
    return x * SCALE  # here


g = torch.compile(f, backend="eager")
for SCALE in (3, 4, 5):
    print(g(torch.ones(4)).sum().item())
