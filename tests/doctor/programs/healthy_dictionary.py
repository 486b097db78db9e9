# expect: nothing
import torch


@torch.compile(backend="eager")
def f(batch):
    return batch["x"] * batch["y"]


print(f({"x": torch.ones(4), "y": torch.ones(4)}))
print(f({"x": torch.ones(4), "y": torch.ones(4)}))
print(f({"x": torch.ones(4), "y": torch.ones(4)}))
