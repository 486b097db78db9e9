# expect: D106 a 0 anyshape
import torch


def f(a, out):
    torch.linalg.cholesky(a, out=out)  # here
    return out * 2


g = torch.compile(f, backend="eager", dynamic=True)
for n in (3, 4, 5):
    print(g(torch.eye(2).repeat(n, 1, 1), torch.empty(n, 2, 2)).sum().item())
