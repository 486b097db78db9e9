"""Families of models of the installed transformers over seven sizes: programs, wrong results, calls that ran eagerly.

Each has random weights and is called with and without an `attention_mask`, and in three ways with a cache: none, one
that the call begins, and one that holds tokens already (as many as the length of the call and one more). What a call
gives is compared with eager, the keys and values of its cache included. Where it took more programs than two, the
questions that tell them apart are printed.

usage: families.py [--only llama t5 ...] [--caches none,begun,held] [--layers 2] [--backend aot_eager] [--explain]
                   [--json FILE]
"""

from __future__ import annotations

import argparse
import copy
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import transformers

import anyshape

SIZES = ((3, 11), (1, 9), (4, 1), (1, 1), (2, 30), (1, 1), (7, 1))
CACHES = ("none", "begun", "held")
MOST = 2  # programs
VOCABULARY = 128

_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}
_GROUPED: dict[str, Any] = {**_COMMON, "num_key_value_heads": 2}


def _causal(family: str, **sizes: Any) -> Callable[[int], Any]:
    def make(layers: int) -> Any:
        config = getattr(transformers, f"{family}Config")(num_hidden_layers=layers, **sizes)
        return getattr(transformers, f"{family}ForCausalLM")(config)

    return make


def _gpt2(layers: int) -> Any:
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=64, n_layer=layers, n_head=4)
    return transformers.GPT2LMHeadModel(config)


def _bert(layers: int) -> Any:
    return transformers.BertModel(transformers.BertConfig(num_hidden_layers=layers, **_COMMON))


def _t5(layers: int) -> Any:
    sizes = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_heads": 4}
    config = transformers.T5Config(vocab_size=VOCABULARY, num_layers=layers, **sizes)
    return transformers.T5ForConditionalGeneration(config)


FAMILIES: dict[str, Callable[[int], Any]] = {
    "llama": _causal("Llama", **_GROUPED),
    "mistral": _causal("Mistral", sliding_window=8, **_GROUPED),
    "qwen2": _causal("Qwen2", **_GROUPED),
    "qwen3": _causal("Qwen3", head_dim=16, **_GROUPED),
    "gemma": _causal("Gemma", head_dim=16, **_GROUPED),
    "gpt2": _gpt2,
    "bert": _bert,
    "t5": _t5,
}


def ways(family: str, caches: tuple[str, ...] = CACHES) -> list[tuple[bool, str]]:
    """Whether there is a mask, and which cache."""
    return [(mask, cache) for mask in (True, False) for cache in caches if family != "bert" or cache == "none"]


def call_of(family: str, model: Any, size: tuple[int, int], *, mask: bool, cache: str) -> dict[str, Any]:
    """The arguments of a call; a cache that holds something is filled by eager."""
    rows, length = size
    drawn = torch.Generator().manual_seed(100 * rows + length)
    tokens = lambda n: torch.randint(3, VOCABULARY, (rows, n), generator=drawn)
    given: dict[str, Any] = {"input_ids": tokens(length)}
    held = length + 1 if cache == "held" else 0
    if family == "t5":
        given["decoder_input_ids"] = tokens(length)
    if family != "bert":
        given["use_cache"] = cache != "none"
    if held:
        before = {"decoder_input_ids" if family == "t5" else "input_ids": tokens(held)}
        if family == "t5":
            before["input_ids"] = given["input_ids"]
        with torch.no_grad():
            given["past_key_values"] = model(**before, use_cache=True).past_key_values
    if mask:
        width = length if family == "t5" else held + length
        given["attention_mask"] = torch.ones(rows, width, dtype=torch.long)
        given["attention_mask"][0, : width // 3] = 0  # as if padded on the left
    return given


def tensors(output: Any) -> list[torch.Tensor]:
    """All that a call gave, what its cache holds included."""
    found = [x for x in output.to_tuple() if isinstance(x, torch.Tensor)]
    cache = getattr(output, "past_key_values", None)
    for part in [getattr(cache, "self_attention_cache", cache), getattr(cache, "cross_attention_cache", None)]:
        found += [x for layer in getattr(part, "layers", ()) for x in (layer.keys, layer.values)]
    return found


def differs(got: list[torch.Tensor], wanted: list[torch.Tensor]) -> bool:
    alike = len(got) == len(wanted) and all(a.shape == b.shape for a, b in zip(got, wanted, strict=True))
    return not alike or not all(torch.allclose(a, b, atol=1e-4, rtol=1e-4) for a, b in zip(got, wanted, strict=True))


def measure(
    family: str, *, mask: bool, cache: str, layers: int = 2, backend: str = "aot_eager"
) -> tuple[Any, dict[str, Any]]:
    """A compiled model after a call of each size, and what is to be said of it."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = FAMILIES[family](layers).eval()
    f = anyshape.compile(model, backend=backend)
    wrong, began = 0, time.process_time()
    with torch.no_grad():
        for size in SIZES:
            given = call_of(family, model, size, mask=mask, cache=cache)
            wanted = tensors(model(**copy.deepcopy(given)))
            wrong += differs(tensors(f(**given)), wanted)
    merged = sum(len(p.merges) for p in f.programs)
    figures = {"programs": len(f.programs), "merged": merged, "wrong": wrong, "eager": sum(f.fallbacks.values())}
    return f, {"family": family, "mask": mask, "cache": cache, **figures, "s": time.process_time() - began}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--caches", default=",".join(CACHES))
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--explain", action="store_true")
    parser.add_argument("--json")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    print(f"{'':10}{'mask':>6}{'cache':>8}{'programs':>10}{'merged':>8}{'wrong':>7}{'eager':>7}{'CPU s':>8}")
    rows = []
    for family in options.only:
        for mask, cache in ways(family, tuple(options.caches.split(","))):
            f, row = measure(family, mask=mask, cache=cache, layers=options.layers, backend=options.backend)
            rows.append(row)
            names = f"{family:10}{'yes' if mask else 'no':>6}{cache:>8}"
            counts = f"{row['programs']:10}{row['merged']:8}{row['wrong']:7}{row['eager']:7}"
            print(f"{names}{counts}{row['s']:8.1f}", flush=True)
            if options.explain or row["programs"] > MOST or row["eager"]:
                print(anyshape.explain(f), flush=True)
    short = [r for r in rows if r["programs"] > MOST or r["wrong"] or r["eager"]]
    print(f"{len(rows) - len(short)} of {len(rows)} have {MOST} programs at most, are right and never ran eagerly")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
