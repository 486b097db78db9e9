"""How soon a fresh process gives its first right answer: an artifact beside stock torch, cold and with warm caches.

A four-block transformer with a branch on the length, free batch and length, two variants. Each way is a process of its
own, timed from before `import torch` to the first answer, which is compared with eager's; the CPU time of that process
(without the compilers that it starts) is beside it, for machines that others use too. What was captured, lowered and
built in it is counted. Stock's caches are warmed by a process that made the same call.

    python benchmarks/ahead.py [--rounds 3] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

KEY = b"a secret of thirty-two bytes ..."
SIZES = ((4, 24), (1, 16), (2, 64))  # batch and length: the general program, a variant, the other behavior's variant


def model() -> Any:
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            batch, length, width = x.shape
            parts = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, width // self.heads)
            q, k, v = parts.permute(2, 0, 3, 1, 4)
            x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class Transformer(nn.Module):
        def __init__(self, width: int = 64, heads: int = 4, depth: int = 4) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
            self.head = nn.Linear(width, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[1] > 32:  # long inputs are centred
                x = x - x.mean(1, keepdim=True)
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    torch.manual_seed(0)
    return Transformer().eval()


def make(path: str) -> None:
    """The artifact: two behaviors, two variants."""
    import torch

    import anyshape

    calls = [(torch.randn(b, n, 64),) for b, n in SIZES]
    with torch.no_grad():
        made = anyshape.precompile(
            model(),
            calls[0],
            calls=calls[1:],
            shapes={"x": "batch seq 64"},
            specialize=["batch == 1", "seq == 64"],
        )
    made.save(path, key=KEY)
    print(json.dumps({"programs": len(made.programs), "variants": sum(len(p.variants) for p in made.programs)}))


def serve(way: str, path: str, size: tuple[int, int]) -> None:
    """In the fresh process: the first answer."""
    began = time.perf_counter()
    import torch

    imported = time.perf_counter()
    net = model()
    x = torch.randn(*size, 64)
    with torch.no_grad():
        if way == "artifact":
            import anyshape

            f = anyshape.load(path, net, key=KEY)
        else:
            f = torch.compile(net, dynamic=True)
        counts = _counting() if way == "artifact" else {}
        answer = f(x)
        took, cpu = time.perf_counter() - began, time.process_time()
        _loaded_since(counts)
        right = bool(torch.allclose(answer, net(x), atol=1e-4, rtol=1e-4))
        for other in SIZES if way == "artifact" else ():
            y = torch.randn(*other, 64)
            right &= bool(torch.allclose(f(y), net(y), atol=1e-4, rtol=1e-4))
    frames = sum(torch._dynamo.utils.counters["frames"].values())
    print(
        json.dumps(
            {
                "seconds": took,
                "after_import": took - (imported - began),
                "cpu": cpu,
                "right": right,
                "frames": frames,
                **counts,
            }
        )
    )


PLACES = {
    "lowered": ("torch._inductor.graph", "GraphLowering", "__init__"),
    "built": ("torch._inductor.cpp_builder", "CppBuilder", "build"),
}


def _counting() -> dict[str, int]:
    """Counters in the places where a graph would be lowered and C++ built, as far as those are loaded."""
    counts = dict.fromkeys(PLACES, 0)

    def count(owner: Any, name: str, what: str) -> None:
        stock = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            counts[what] += 1
            return stock(*args, **kwargs)

        setattr(owner, name, counted)

    for what, (module, owner, name) in PLACES.items():
        if module in sys.modules:  # importing it here would be in the time to the first answer
            count(getattr(sys.modules[module], owner), name, what)
        else:
            counts[module] = 0
    return counts


def _loaded_since(counts: dict[str, int]) -> None:
    """A place that was not even loaded has made nothing; one that has been loaded since may have."""
    for what, (module, _, _) in PLACES.items():
        if counts.pop(module, None) is not None and module in sys.modules:
            counts[what] = -1


def child(*arguments: str, cache: str) -> dict[str, Any]:
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache}
    command = [sys.executable, os.path.abspath(__file__), *arguments]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(ran.stderr[-3000:])
    return json.loads(ran.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("child", nargs="*")
    given = parser.parse_args()
    if given.child[:1] == ["make"]:
        return make(given.child[1])
    if given.child[:1] == ["serve"]:
        return serve(given.child[1], given.child[2], (int(given.child[3]), int(given.child[4])))
    rows: dict[str, list[dict[str, Any]]] = {"stock, cold": [], "stock, warm caches": [], "artifact": []}
    size = tuple(map(str, SIZES[0]))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.any")
        made = child("make", path, cache=os.path.join(folder, "made"))
        print(f"the artifact has {made['programs']} programs, {os.path.getsize(path):,} bytes", flush=True)
        for i in range(given.rounds):
            cache = os.path.join(folder, f"cache-{i}")
            rows["stock, cold"].append(child("serve", "stock", path, *size, cache=cache))
            rows["stock, warm caches"].append(child("serve", "stock", path, *size, cache=cache))
            empty = os.path.join(folder, f"empty-{i}")
            rows["artifact"].append(child("serve", "artifact", path, *size, cache=empty))
    median = {way: statistics.median(r["seconds"] for r in found) for way, found in rows.items()}
    after = {way: statistics.median(r["after_import"] for r in found) for way, found in rows.items()}
    cpu = {way: statistics.median(r["cpu"] for r in found) for way, found in rows.items()}
    print(f"{'':20} {'first answer':>13} {'after import torch':>19} {'CPU of it':>10} {'beside artifact':>16}  right")
    for way, found in rows.items():
        right = "yes" if all(r["right"] for r in found) else "NO"
        times = median[way] / median["artifact"]
        print(f"{way:20} {median[way]:11.2f} s {after[way]:17.2f} s {cpu[way]:8.2f} s {times:15.1f}x  {right}")
    idle = all(r["frames"] == r["lowered"] == r["built"] == 0 for r in rows["artifact"])
    print(f"captured, lowered and built by the process with the artifact: {'nothing' if idle else 'SOMETHING'}")
    if given.json is not None:
        given.json.write_text(
            json.dumps({"made": made, "rows": rows, "median": median, "cpu": cpu, "idle": idle}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
