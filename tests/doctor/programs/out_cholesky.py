# expect: D106 a 0 anyshape
import torch


def f(a, out):
    return torch.linalg.cholesky(a, out=out)  # here


g = torch.compile(f, backend="eager")
for n in (3, 4, 5, 6):
    print(g(torch.eye(2).repeat(n, 1, 1), torch.empty(n, 2, 2)).sum().item())
