# expect: D101 tokens 1 anyshape
import torch


@torch.compile(backend="eager", dynamic=True)
def f(tokens, scale):
    return tokens.cos() + scale.sum()  # here


for n in (6, 0, 9):
    print(f(torch.ones(3, n), torch.ones(2)).sum().item())
