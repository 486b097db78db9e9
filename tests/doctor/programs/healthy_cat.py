# expect: nothing
import torch


@torch.compile(backend="eager", dynamic=True)
def f(x, y):
    return torch.cat([x, y])


print(f(torch.ones(4, 3), torch.ones(7, 3)))
print(f(torch.ones(6, 3), torch.ones(9, 3)))
