# expect: D117 - - advice
import torch

f = torch.compile(torch.nn.Linear(4, 4), backend="eager")
x = torch.zeros(2, 4)
for enabled in (False, True, False, True):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled), torch.no_grad():
        print(f(x).dtype)  # here
