# expect: D110 self.mode - advice
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mode = "train"

    def forward(self, x):
        return x * 2 if self.mode == "train" else x  # here


model = Model()
g = torch.compile(model, backend="eager")
print(g(torch.ones(4)).sum().item())
model.mode = "eval"
print(g(torch.ones(4)).sum().item())
