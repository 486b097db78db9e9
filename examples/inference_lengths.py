"""Attention over sequences of many lengths, writing into one pre-allocated output: one program for all of them."""

from __future__ import annotations

import torch

import anyshape

LENGTHS = (128, 256, 512, 1024)
HEADS, WIDTH = 2, 16


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(HEADS * WIDTH, 3 * HEADS * WIDTH)

    def forward(self, x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Self-attention of `x` (length, features) into the first rows of `out`."""
        length = x.shape[0]
        q, k, v = self.project(x).reshape(length, 3, HEADS, WIDTH).permute(1, 2, 0, 3).unbind(0)
        weights = torch.softmax(torch.bmm(q, k.mT) / WIDTH**0.5, dim=-1)
        target = out[:length].reshape(length, HEADS, WIDTH).transpose(0, 1)
        torch.bmm(weights, v, out=target)
        return out[:length]


def main(backend: str = "inductor", lengths: tuple[int, ...] = (*LENGTHS, 1, 7)) -> int:
    """Compare with eager; gives back how many programs were compiled."""
    torch.manual_seed(0)
    model = Attention().eval()
    compiled = anyshape.compile(model, backend=backend)
    expected, out = torch.zeros(2, max(lengths), HEADS * WIDTH)
    with torch.no_grad():
        for length in lengths:
            x = torch.randn(length, HEADS * WIDTH)
            torch.testing.assert_close(compiled(x, out), model(x, expected), rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
            print(f"length {length}: ok")
    print(f"programs: {len(compiled.programs)}")
    return len(compiled.programs)


if __name__ == "__main__":
    main()
