# expect: nothing
import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
g = torch.compile(model, backend="aot_eager", dynamic=True)
for n in (5, 6, 9):
    loss = g(torch.ones(n, 4)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(round(loss.item(), 4))
