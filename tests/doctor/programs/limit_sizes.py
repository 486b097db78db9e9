# expect: D130 x 0 environment
import torch


def f(x):
    return x.sin() * 2  # here


torch._dynamo.config.recompile_limit = 3
g = torch.compile(f, backend="eager", dynamic=False)
for n in (3, 4, 5, 6, 7):
    print(g(torch.ones(n)).sum().item())
