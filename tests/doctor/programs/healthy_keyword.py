# expect: nothing
import torch


@torch.compile(backend="eager")
def f(x, *, scale=None):
    return x * scale


print(f(torch.ones(4), scale=torch.tensor(2.0)))
print(f(torch.ones(4), scale=torch.tensor(2.0)))
