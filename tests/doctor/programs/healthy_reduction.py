# expect: nothing
import torch


@torch.compile(backend="eager", dynamic=True)
def f(x):
    return x.sum(0), x.amax(1)


print(f(torch.ones(4, 6)))
print(f(torch.ones(6, 8)))
