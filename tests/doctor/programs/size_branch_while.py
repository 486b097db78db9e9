# expect: D104 ids 1 advice
import torch


def f(ids):
    return ids * 2 if ids.shape[1] <= 16 else ids[:, :16]  # here


g = torch.compile(f, backend="eager", dynamic=True)
for n in (9, 20):
    print(g(torch.ones(2, n)).sum().item())
