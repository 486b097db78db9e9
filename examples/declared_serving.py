"""A declared model for serving: named sizes, invariants, and a proof that no call will ever wait for a compiler."""

from __future__ import annotations

import torch

import anyshape

WIDTH = 32


class Scorer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.short, self.long = torch.nn.Linear(WIDTH, 1), torch.nn.Linear(WIDTH, 1)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Another head for long inputs: two behaviours."""
        head = self.long if tokens.shape[1] > 64 else self.short
        return (head(tokens)[..., 0] * mask).sum(1)


def main(backend: str = "inductor") -> int:
    """Compare with eager; gives back how many programs were compiled."""
    torch.manual_seed(0)
    model = Scorer().eval()
    f = anyshape.compile(
        model,
        shapes={"tokens": f"batch seq {WIDTH}", "mask": "batch seq"},
        where=["1 <= batch <= 64", "8 <= seq <= 512", "seq % 8 == 0"],
        on_new_behavior="error",
        backend=backend,
    )
    call = lambda batch, seq: (torch.randn(batch, seq, WIDTH), torch.ones(batch, seq))
    with torch.no_grad(), anyshape.warm_up(f):
        f(*call(4, 32))
        print(anyshape.check(f))
        f(*call(4, 128))
        print(anyshape.check(f))
    assert anyshape.check(f)
    with torch.no_grad():
        for batch, seq in ((1, 8), (64, 64), (3, 72), (17, 512)):
            given = call(batch, seq)
            torch.testing.assert_close(f(*given), model(*given), rtol=1e-4, atol=1e-5)
            print(f"batch {batch}, seq {seq}: ok")
        try:
            f(*call(3, 12))
        except anyshape.InvariantError as error:
            print(error)
    print(f"programs: {len(f.programs)}")
    return len(f.programs)


if __name__ == "__main__":
    main()
