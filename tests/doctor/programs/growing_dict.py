# expect: D113 state - advice
import torch


def f(x, state):
    for value in state.values():  # here
        x = x + value
    return x


g = torch.compile(f, backend="eager")
state = {}
for i in range(3):
    state[f"layer{i}"] = torch.ones(4)
    print(g(torch.ones(4), state).sum().item())
