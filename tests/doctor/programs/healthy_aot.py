# expect: nothing
import torch


@torch.compile(backend="aot_eager", dynamic=True)
def f(x):
    return (x * x).sum()


print(f(torch.ones(4)))
print(f(torch.ones(6)))
