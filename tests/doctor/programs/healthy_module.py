# expect: nothing
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
g = torch.compile(model, backend="eager", dynamic=True)
for n in (5, 6, 9):
    print(g(torch.ones(n, 4)).shape)
