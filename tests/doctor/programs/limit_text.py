# expect: D130 name - advice
import torch


def f(x, name):
    return x + len(name) if name != "z" else x  # here


torch._dynamo.config.recompile_limit = 3
g = torch.compile(f, backend="eager")
for name in ("a", "bb", "ccc", "dddd", "eeeee"):
    print(g(torch.ones(4), name).sum().item())
