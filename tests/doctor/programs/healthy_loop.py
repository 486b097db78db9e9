# expect: nothing
import torch


@torch.compile(backend="eager")
def f(x):
    for _ in range(3):
        x = x * 2
    return x


print(f(torch.ones(4)))
print(f(torch.ones(4)))
