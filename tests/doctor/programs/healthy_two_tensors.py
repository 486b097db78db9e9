# expect: nothing
import torch


@torch.compile(backend="eager", dynamic=True)
def f(x, y):
    return x @ y


print(f(torch.ones(5, 6), torch.ones(6, 3)))
print(f(torch.ones(8, 9), torch.ones(9, 3)))
