# expect: nothing
import torch


@torch.compile(backend="eager", dynamic=True)
def f(q, k):
    return torch.nn.functional.scaled_dot_product_attention(q, k, k)


print(f(torch.ones(2, 2, 4, 8), torch.ones(2, 2, 4, 8)))
print(f(torch.ones(2, 2, 6, 8), torch.ones(2, 2, 6, 8)))
