# expect: nothing
import torch


@torch.compile(backend="eager", dynamic=True)
def f(x):
    return x.softmax(-1)


print(f(torch.ones(4, 8)))
print(f(torch.ones(7, 14)))
