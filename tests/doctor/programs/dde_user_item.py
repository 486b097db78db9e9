# expect: D120 - - advice
import torch

torch._dynamo.config.capture_scalar_outputs = True


def f(x, n):
    k = (n * 2).item()
    if k > 3:  # here
        return x + k
    return x - k


g = torch.compile(f, backend="eager")
for n in (5, 1):
    print(g(torch.ones(4), torch.tensor(n)).sum().item())
