# expect: D112 bias - plain
import torch


@torch.compile(backend="eager")
def f(x, bias):
    return x + bias  # here


for bias in (torch.ones(4), torch.nn.Parameter(torch.ones(4), requires_grad=False)):
    print(f(torch.ones(2, 4), bias).sum().item())
