"""A training loop whose batch size changes, with activations and gradients written into buffers by `out=`.

Gradients are written out by hand (`out=` takes no part in autograd), as fused optimizers and pre-allocated loops do.
"""

from __future__ import annotations

import torch

import anyshape

BATCHES = (16, 24, 32, 48)
FEATURES, HIDDEN, CLASSES = 12, 20, 3


class Buffers:
    """Memory for the largest batch; each step uses the part it needs. The gradients' shapes never change."""

    def __init__(self, largest: int) -> None:
        self.hidden = torch.empty(largest, HIDDEN)
        self.logits = torch.empty(largest, CLASSES)
        self.grad_first = torch.empty(FEATURES, HIDDEN)
        self.grad_second = torch.empty(HIDDEN, CLASSES)


def train_step(
    x: torch.Tensor, target: torch.Tensor, first: torch.Tensor, second: torch.Tensor, buffers: Buffers
) -> torch.Tensor:
    batch = x.shape[0]
    hidden, logits = buffers.hidden[:batch], buffers.logits[:batch]
    torch.mm(x, first, out=hidden)
    torch.clamp(hidden, min=0, out=hidden)
    torch.mm(hidden, second, out=logits)
    probabilities = torch.softmax(logits, dim=-1)
    one_hot = torch.nn.functional.one_hot(target, CLASSES).to(x.dtype)
    loss = -(one_hot * torch.log(probabilities)).sum(dim=-1).mean()
    upstream = (probabilities - one_hot) / batch
    torch.mm(hidden.T, upstream, out=buffers.grad_second)
    torch.mm(x.T, upstream @ second.T * (hidden > 0), out=buffers.grad_first)
    first.sub_(buffers.grad_first, alpha=0.5)
    second.sub_(buffers.grad_second, alpha=0.5)
    return loss


def train(step_fn: object, epochs: int = 5) -> list[float]:
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(FEATURES, HIDDEN, generator=generator) / 4
    second = torch.randn(HIDDEN, CLASSES, generator=generator) / 4
    buffers = Buffers(max(BATCHES))
    losses = []
    for _ in range(epochs):
        for batch in BATCHES:
            x = torch.randn(batch, FEATURES, generator=generator)
            target = x[:, :CLASSES].argmax(dim=1)
            losses.append(float(step_fn(x, target, first, second, buffers)))  # type: ignore[operator]
    return losses


def main(backend: str = "inductor") -> int:
    """Compare with eager; gives back how many programs were compiled."""
    compiled = anyshape.compile(train_step, backend=backend)
    expected, losses = train(train_step), train(compiled)
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-4)
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f} over batches of {', '.join(map(str, BATCHES))}")
    print(f"programs: {len(compiled.programs)}")
    return len(compiled.programs)


if __name__ == "__main__":
    main()
