# expect: nothing
import torch


@torch.compile(backend="eager")
def f(a, b):
    return torch.relu(a @ b)


print(f(torch.ones(3, 4), torch.ones(4, 5)))
print(f(torch.ones(3, 4), torch.ones(4, 5)))
