# expect: nothing
import torch


@torch.compile(backend="eager")
def f(x):
    return x.sin() + 1


print(f(torch.ones(4, 4)))
print(f(torch.ones(4, 4)))
print(f(torch.ones(4, 4)))
