# expect: D102 x 0 environment
import torch

model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())


def step(x):
    return model(x).sum()  # here


torch.manual_seed(0)
g = torch.compile(step, backend="eager")
for batch in torch.ones(22, 4).split(8):
    print(round(g(batch).item(), 4))
