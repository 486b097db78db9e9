# expect: nothing
import torch


@torch.compile(backend="eager")
def f(items):
    return items[0] + items[1]


print(f([torch.ones(4), torch.ones(4)]))
print(f([torch.ones(4), torch.ones(4)]))
print(f([torch.ones(4), torch.ones(4)]))
