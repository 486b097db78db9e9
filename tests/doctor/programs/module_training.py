# expect: D110 self.drop.training - advice
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = torch.nn.Dropout(0.0)

    def forward(self, x):
        return self.drop(x) + 1  # here


model = Model()
g = torch.compile(model, backend="eager")
print(g(torch.ones(4)).sum().item())
model.eval()
print(g(torch.ones(4)).sum().item())
