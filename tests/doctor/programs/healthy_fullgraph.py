# expect: nothing
import torch


@torch.compile(backend="eager", fullgraph=True, dynamic=True)
def f(x):
    return x.reshape(-1).cumsum(0)


print(f(torch.ones(4, 3)))
print(f(torch.ones(6, 3)))
