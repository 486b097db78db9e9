# expect: D105 image - contiguous
import torch


@torch.compile(backend="eager")
def f(image):
    return image * 0.5  # here


image = torch.ones(2, 3, 4, 4)
print(f(image).sum().item())
print(f(image.contiguous(memory_format=torch.channels_last)).sum().item())
