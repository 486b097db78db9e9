"""Train with batches of every size, the last and the empty one among them: one program, no recompile."""

from __future__ import annotations

import torch

import anyshape
from anyshape.testing import expect_programs


def main() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    model = anyshape.compile(net, backend="aot_eager")
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01)
    with expect_programs(1):
        for batch in (48, 48, 17, 1, 48, 0, 5):
            x = torch.randn(batch, 8)
            loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True), reduction="sum")
            loss.backward()
            optimiser.step()
            optimiser.zero_grad()
            print(f"batch {batch:>2}: loss {loss.item():.3f}")
    print(anyshape.explain(model))


if __name__ == "__main__":
    main()
