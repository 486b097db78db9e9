# expect: nothing
import torch


@torch.compile(backend="eager")
def f(x):
    x.add_(1)
    return x


print(f(torch.zeros(4)))
print(f(torch.zeros(4)))
