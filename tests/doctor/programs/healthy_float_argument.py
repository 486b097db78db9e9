# expect: nothing
import torch


@torch.compile(backend="eager")
def f(x, a):
    return x * a


print(f(torch.ones(4), 0.5))
print(f(torch.ones(4), 0.5))
print(f(torch.ones(4), 0.5))
