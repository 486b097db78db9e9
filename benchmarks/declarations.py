"""What declarations cost and give: a seen key at the entry check, strides that may be any, counts of 0, 1 and 2.

Prints each figure beside what it is compared with, measured in this run: the best of many rounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

import anyshape
from anyshape._torch.comparison import stock


def best(call: Callable[[], Any], *, rounds: int, repeat: int = 1, device: str = "cpu") -> float:
    """Seconds of one call, at the best of many rounds."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    found = float("inf")
    for _ in range(rounds):
        wait()
        began = time.perf_counter()
        for _ in range(repeat):
            call()
        wait()
        found = min(found, (time.perf_counter() - began) / repeat)
    return found


def unchecked(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) + mask


def checked(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The same in a function of its own: programs of one function share Dynamo's cache."""
    return torch.relu(x) + mask


def entry_check(rounds: int) -> None:
    """A call on a seen key, checked and unchecked, in turns."""
    x, mask = torch.randn(16, 16), torch.randn(16, 16)
    words = {"shapes": {"x": "n m", "mask": "n m"}, "where": ["n % 2 == 0", "m <= 64"]}
    plain, declared = anyshape.compile(unchecked), anyshape.compile(checked, **words)
    times = {plain: [], declared: []}
    for _ in range(rounds):
        for f, found in times.items():
            found.append(best(lambda f=f: f(x, mask), rounds=1, repeat=200))
    a, b = (min(found) * 1e6 for found in times.values())
    print(f"seen key:            unchecked {a:.2f} us, checked {b:.2f} us: {b - a:+.2f} us, ratio {b / a:.3f}")


def layouts(rounds: int, device: str) -> None:
    """Programs for any layout on contiguous input."""
    functions: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "pointwise": lambda x: torch.sin(x) * 2 + x,
        "softmax": lambda x: x.softmax(-1),
        "reduction": lambda x: (x * x).sum(-1),
        "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (x.shape[1],)),
    }
    x = torch.randn(1024, 1024, device=device)
    for name, fn in functions.items():
        torch._dynamo.reset()
        contiguous, loose = anyshape.compile(fn, layout="contiguous"), anyshape.compile(fn, layout="any")
        for other in (x, x.t(), x[:, ::2], x[:1].expand(1024, 1024), x[1:]):
            torch.testing.assert_close(loose(other), fn(other), rtol=1e-3, atol=1e-4)
        contiguous(x)
        a = best(lambda: contiguous(x), rounds=rounds, device=device) * 1e6  # noqa: B023
        b = best(lambda: loose(x), rounds=rounds, device=device) * 1e6  # noqa: B023
        programs = len(loose.programs)
        print(f"any layout, {name:<10} contiguous {a:.0f} us, any {b:.0f} us: ratio {b / a:.2f}, {programs} program")


def restaurants() -> None:
    """100 counts of 0, 1 and 2 over 40 days."""
    fn = lambda *visits: torch.stack([v.sum() * 2 + v.numel() for v in visits])
    generator = torch.Generator().manual_seed(0)
    days = [[torch.randn(int(n)) for n in torch.randint(0, 3, (100,), generator=generator)] for _ in range(40)]
    torch._dynamo.reset()
    ours = anyshape.compile(fn, semantics="oblivious", backend="eager")
    for visits in days:
        torch.testing.assert_close(ours(*visits), fn(*visits))
    programs = len(ours.programs)
    torch._dynamo.reset()
    with stock.measuring():
        theirs = stock.compile(fn, mode="auto", backend="eager")
        for visits in days:
            theirs(*visits)
    print(f"counts of 0, 1, 2:   anyshape {programs} program, stock {theirs.programs}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    options = parser.parse_args()
    entry_check(options.rounds)
    layouts(options.rounds, options.device)
    restaurants()
