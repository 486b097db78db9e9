# expect: nothing
import torch


def f(x):
    return x.cos() * 2


g = torch.compile(f, backend="eager")
for n in (4, 6, 9):
    x = torch.ones(n, 3)
    torch._dynamo.mark_dynamic(x, 0)
    print(g(x))
