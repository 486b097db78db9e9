# expect: D110 self.1.training - advice
import torch

model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.0))
g = torch.compile(model, backend="eager")
x = torch.zeros(2, 4)
for training in (True, False, True):
    model.train(training)
    print(g(x).shape[0])  # here
