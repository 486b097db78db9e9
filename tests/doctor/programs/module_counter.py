# expect: D110 self.step - config
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.step = 2

    def forward(self, x):
        return x * self.step  # here


model = Model()
g = torch.compile(model, backend="eager")
for _ in range(4):
    print(g(torch.ones(4)).sum().item())
    model.step += 1
