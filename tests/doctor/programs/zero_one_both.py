# expect: D101 boxes 0 environment
import torch


def area(boxes):
    width = boxes[:, 2] - boxes[:, 0]  # here
    return width * (boxes[:, 3] - boxes[:, 1])


f = torch.compile(area, backend="eager", dynamic=True)
for n in (5, 0, 1, 7):
    print(f(torch.arange(4.0).repeat(n, 1)).sum().item())
