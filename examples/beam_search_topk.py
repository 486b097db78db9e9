"""Beam search over growing sequences, with `topk(out=)` into buffers that are allocated once.

A toy language model scores every prefix; at each step the best continuations of all beams are chosen. The number of
scored candidates changes with every step and prompt; the program does not.
"""

from __future__ import annotations

import torch

import anyshape

BEAMS = 4
VOCABULARY = 23


def step(
    scores: torch.Tensor, prefixes: torch.Tensor, embedding: torch.Tensor, values: torch.Tensor, indices: torch.Tensor
) -> torch.Tensor:
    """Extend each prefix by one token and keep the best; `values` and `indices` are written to."""
    state = embedding[prefixes].mean(dim=1)
    candidates = (scores[:, None] + torch.log_softmax(state @ embedding.T, dim=-1)).reshape(-1)
    torch.topk(candidates, BEAMS, out=(values, indices))
    chosen = prefixes[indices // VOCABULARY]
    return torch.cat([chosen, (indices % VOCABULARY)[:, None]], dim=1)


def search(step_fn: object, embedding: torch.Tensor, prompts: int, length: int, steps: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(length)
    prefixes = torch.randint(VOCABULARY, (prompts, length), generator=generator)
    scores = torch.zeros(prompts)
    values, indices = torch.empty(BEAMS), torch.empty(BEAMS, dtype=torch.long)
    for _ in range(steps):
        prefixes = step_fn(scores, prefixes, embedding, values, indices)  # type: ignore[operator]
        scores = values.clone()
    return prefixes


def main(backend: str = "inductor") -> int:
    """Compare with eager; gives back how many programs were compiled."""
    torch.manual_seed(0)
    embedding = torch.randn(VOCABULARY, 8)
    compiled = anyshape.compile(step, backend=backend)
    for prompts, length in ((2, 5), (1, 3), (4, 1), (3, 9)):
        expected = search(step, embedding, prompts, length, steps=6)
        found = search(compiled, embedding, prompts, length, steps=6)
        torch.testing.assert_close(found, expected)
        print(f"{prompts} prompts of {length}: best beam {found[0].tolist()}")
    print(f"programs: {len(compiled.programs)}")
    return len(compiled.programs)


if __name__ == "__main__":
    main()
