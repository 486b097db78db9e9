"""What a size costs that was never seen before, beside one that was: anyshape and stock torch, in one run.

Each call of a program has sizes that no call had before. After a number of them, a pool of sizes is called again: the
ratio of the medians, in CPU time of the thread, is what it costs to be new. Runs of nodes on fake tensors are counted.
The backend is aot_eager, under which a call is short and its admission shows.

usage: admission.py [--only llama-4 cnn ...] [--calls 60] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

import anyshape

LEARNING = 20  # calls that are not counted: what there is to learn is learnt in them
Calls = Iterator[tuple[tuple[Any, ...], dict[str, Any]]]


def pairs(most_rows: int, longest: int, seed: int = 0) -> Iterator[tuple[int, int]]:
    """Batches and lengths, no pair twice."""
    drawn, seen = random.Random(seed), set()
    while len(seen) < most_rows * longest:
        pair = drawn.randint(1, most_rows), drawn.randint(1, longest)
        if pair not in seen:
            seen.add(pair)
            yield pair


def llama(layers: int) -> tuple[Any, Calls]:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=128, num_hidden_layers=layers, **sizes)).eval()
    return model, _tokens(pairs(8, 256))


def gpt2() -> tuple[Any, Calls]:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_embd=64, n_layer=4, n_head=4)).eval()
    return model, _tokens(pairs(8, 256))


def _tokens(sizes: Iterator[tuple[int, int]]) -> Calls:
    for rows, length in sizes:
        ids = torch.randint(0, 128, (rows, length))
        yield (), {"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": False}


def vit() -> tuple[Any, Calls]:
    from transformers import ViTConfig, ViTModel

    sizes = {"hidden_size": 48, "intermediate_size": 96, "num_attention_heads": 4, "num_hidden_layers": 4}
    model = ViTModel(ViTConfig(image_size=64, patch_size=8, **sizes)).eval()
    grid = ((rows, 8 * cells) for rows, cells in pairs(8, 20))
    images = ((torch.randn(rows, 3, side, side),) for rows, side in grid)
    return model, ((given, {"interpolate_pos_encoding": True}) for given in images)


def cnn() -> tuple[Any, Calls]:
    block = lambda a, b: [torch.nn.Conv2d(a, b, 3, padding=1), torch.nn.BatchNorm2d(b), torch.nn.ReLU()]
    model = torch.nn.Sequential(*block(3, 8), *block(8, 8), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    return model.eval(), (((torch.randn(rows, 3, side + 8, side + 8),), {}) for rows, side in pairs(8, 60))


def thirty() -> tuple[Any, Calls]:
    def fn(*inputs: torch.Tensor) -> torch.Tensor:
        return torch.stack([x.relu().sum(1) for x in inputs]).mean(0)

    return fn, ((tuple(torch.randn(rows, size + i) for i in range(30)), {}) for rows, size in pairs(16, 60))


def experts() -> tuple[Any, Calls]:
    from transformers import MixtralConfig, MixtralForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = MixtralConfig(vocab_size=128, num_hidden_layers=2, num_local_experts=4, **sizes)
    return MixtralForCausalLM(config).eval(), _tokens(pairs(8, 64))


def training() -> tuple[Any, Calls]:
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return layer(x).square().mean()

    return fn, (((torch.randn(rows, length, 32),), {}) for rows, length in pairs(8, 256))


def nothing() -> tuple[Any, Calls]:
    def fn(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    return fn, ((tuple(torch.empty(rows, length) for _ in range(3)), {}) for rows, length in pairs(64, 256))


PROGRAMS: dict[str, Callable[[], tuple[Any, Calls]]] = {
    "llama-4": lambda: llama(4),
    "llama-16": lambda: llama(16),
    "gpt2": gpt2,
    "vit": vit,
    "cnn": cnn,
    "thirty": thirty,
    "experts": experts,
    "training": training,
    "nothing": nothing,
}


def measure(name: str, compile_: Callable[[Any], Any], calls: int) -> tuple[Any, dict[str, float]]:
    """Medians in milliseconds of calls with new sizes and with sizes that were seen, in turn."""
    torch.manual_seed(0)
    model, made = PROGRAMS[name]()
    f = compile_(model)
    trains = name == "training"

    def call(given: tuple[tuple[Any, ...], dict[str, Any]]) -> float:
        with torch.set_grad_enabled(trains):
            model(*given[0], **given[1])  # libraries under torch have seen the sizes
            began = time.thread_time()
            result = f(*given[0], **given[1])
            took = time.thread_time() - began
            if trains:
                result.backward()
            return took

    pool = [next(made) for _ in range(LEARNING)]
    for given in pool:
        call(given)
    before = verifications(f)
    new, seen = [], []
    for number in range(calls):
        new.append(call(next(made)))
        seen.append(call(pool[number % len(pool)]))
    found = {"new": 1e3 * statistics.median(new), "seen": 1e3 * statistics.median(seen)}
    found["ratio"], found["more_us"] = found["new"] / found["seen"], 1e3 * (found["new"] - found["seen"])
    return f, found | {"verifications": verifications(f) - before}


def verifications(f: Any) -> int:
    return sum(p.verifications for p in getattr(f, "programs", ()))


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--only", nargs="*", choices=PROGRAMS, default=list(PROGRAMS))
    options.add_argument("--calls", type=int, default=60)
    options.add_argument("--json")
    given = options.parse_args()
    torch._dynamo.config.recompile_limit = 64
    print(
        f"{'':10}{'new ms':>10}{'seen ms':>10}{'ratio':>8}{'more us':>10}{'runs':>6}{'programs':>10}{'stock ratio':>13}"
    )
    rows = {}
    for name in given.only:
        f, row = measure(name, lambda m: anyshape.compile(m, backend="aot_eager", specialize="never"), given.calls)
        row["programs"] = len(f.programs)
        torch._dynamo.reset()
        _, stock = measure(name, lambda m: torch.compile(m, backend="aot_eager", dynamic=True), given.calls)
        torch._dynamo.reset()
        rows[name] = row | {"stock_ratio": stock["ratio"], "stock_seen": stock["seen"]}
        figures = f"{row['new']:10.3f}{row['seen']:10.3f}{row['ratio']:8.2f}{row['more_us']:10.1f}"
        print(f"{name:10}{figures}{row['verifications']:6}{row['programs']:10}{stock['ratio']:13.2f}", flush=True)
    if given.json:
        with open(given.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
