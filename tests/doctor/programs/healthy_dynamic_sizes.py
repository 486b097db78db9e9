# expect: nothing
import torch


@torch.compile(backend="eager", dynamic=True)
def f(x):
    return x.sin() + 1


print(f(torch.ones(5, 4)))
print(f(torch.ones(8, 4)))
print(f(torch.ones(12, 4)))
