# expect: nothing
import torch


@torch.compile(backend="eager")
def double(x):
    return x * 2


@torch.compile(backend="eager")
def halve(x):
    return x / 2


for _ in range(3):
    print(halve(double(torch.ones(4))))
