"""Mixed requests to models of some size, from a cold start and once more: anyshape beside stock modes, in one run.

Calls draw their batch and length from a seeded generator; a few have a length of 1. Each model and mode runs in a
process of its own with caches of its own. *Cold* is the time of all calls from the first on, *steady* that of the same
calls again, *wrong* counts sizes whose result is not eager's within the precision of the type. A model that takes a
mask is run with and without one.

usage: python -m benchmarks.zoo --trace [--device cuda] [--only NAME ...] [--layers N] [--width N] [--calls N]
                                        [--rows N] [--longest N] [--backend NAME] [--json FILE]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.zoo.rows import WORDS

MODES = ("anyshape", "auto", "dynamic")
# layers, width, calls, the largest batch, the greatest length
LIMITS = {"cuda": (8, 1024, 150, 8, 1500), "cpu": (1, 32, 6, 3, 12)}
CLOSE = {"bfloat16": 2e-2, "float32": 1e-4}  # of the norm of the result


@dataclasses.dataclass(frozen=True)
class Served:
    """A model as it is served: its class, what it is configured with for layers and a width, what a call is given."""

    model: str
    config: Callable[[int, int], dict[str, Any]]
    inputs: str = "text"  # or "pair", "picture", "sound"
    takes_mask: bool = True


_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def _decoder(layers: int, width: int, **more: Any) -> dict[str, Any]:
    heads = max(2, width // 64)
    sizes = {"hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": layers}
    known = {
        "vocab_size": WORDS,
        "max_position_embeddings": 2048,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return {**sizes, **known, "num_attention_heads": heads, **more}


def _with_key_heads(layers: int, width: int, **more: Any) -> dict[str, Any]:
    return _decoder(layers, width, num_key_value_heads=max(1, width // 128), **more)


def _experts(layers: int, width: int) -> dict[str, Any]:
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": width}
    return _with_key_heads(layers, width, **experts, shared_expert_intermediate_size=width)


def _gpt2(layers: int, width: int) -> dict[str, Any]:
    return {"vocab_size": WORDS, "n_embd": width, "n_layer": layers, "n_head": max(2, width // 64), "n_positions": 2048}


def _t5(layers: int, width: int) -> dict[str, Any]:
    heads = max(2, width // 64)
    sizes = {"d_model": width, "d_kv": width // heads, "d_ff": 2 * width, "num_layers": layers, "num_heads": heads}
    return {**sizes, "vocab_size": WORDS, "decoder_start_token_id": 0}


def _vit(layers: int, width: int) -> dict[str, Any]:
    return {**_decoder(layers, width), "image_size": 224, "patch_size": 16}


def _whisper(layers: int, width: int) -> dict[str, Any]:
    heads = max(2, width // 64)
    side = {"layers": layers, "attention_heads": heads, "ffn_dim": 2 * width}
    sides = {f"{which}_{what}": n for which in ("encoder", "decoder") for what, n in side.items()}
    tokens = {"vocab_size": WORDS, **_TOKENS, "decoder_start_token_id": 1}
    return {**sides, **tokens, "d_model": width, "num_mel_bins": 80, "max_source_positions": 1500}


MODELS = {
    "llama": Served("LlamaForCausalLM", _with_key_heads),
    "mistral": Served("MistralForCausalLM", _with_key_heads),
    "qwen2-moe": Served("Qwen2MoeForCausalLM", _experts),
    "gpt2": Served("GPT2LMHeadModel", _gpt2),
    "bert": Served("BertModel", _decoder),
    "t5": Served("T5ForConditionalGeneration", _t5, "pair"),
    "vit": Served("ViTModel", _vit, "picture", takes_mask=False),
    "whisper": Served("WhisperForConditionalGeneration", _whisper, "sound", takes_mask=False),
}


def sizes(options: argparse.Namespace) -> list[tuple[int, int]]:
    """Batches and lengths in the order in which they come; every tenth call is of length 1."""
    drawn = random.Random(options.seed)
    found = [(drawn.randint(1, options.rows), drawn.randint(1, options.longest)) for _ in range(options.calls)]
    return [(batch, 1 if n % 10 == 1 else length) for n, (batch, length) in enumerate(found)]


def inputs(served: Served, batch: int, length: int, *, masked: bool, device: str, dtype: Any) -> dict[str, Any]:
    import torch

    def tokens(most: int) -> Any:
        return torch.randint(3, WORDS, (batch, max(1, min(most, length))), device=device)

    if served.inputs == "picture":
        side = 16 * (1 + length % 14)
        pixels = torch.randn(batch, 3, side, side, device=device, dtype=dtype)
        return {"pixel_values": pixels, "interpolate_pos_encoding": True}
    if served.inputs == "sound":
        features = torch.randn(batch, 80, 3000, device=device, dtype=dtype)
        return {"input_features": features, "decoder_input_ids": tokens(400)}
    given: dict[str, Any] = {"input_ids": tokens(length)}
    if served.inputs == "pair":
        given["decoder_input_ids"] = tokens(length // 2)
    else:
        given["use_cache"] = False
    if served.model == "BertModel":
        del given["use_cache"]
    if masked:
        rows = torch.arange(batch, device=device)[:, None]
        kept = torch.arange(length, device=device)[None, :] < torch.clamp(length - rows, min=1)
        given["attention_mask"] = kept.long()
    return given


def serve(name: str, mode: str, masked: bool, options: argparse.Namespace) -> dict[str, Any]:
    """What a process of a trace does."""
    import torch
    import transformers

    import anyshape
    from anyshape._torch.comparison import stock

    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    served, device = MODELS[name], options.device
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    cls = getattr(transformers, served.model)
    model = cls(cls.config_class(**served.config(options.layers, options.width))).to(device, dtype).eval()
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    calls = {s: inputs(served, *s, masked=masked, device=device, dtype=dtype) for s in dict.fromkeys(sizes(options))}
    f: Any
    with stock.measuring(), torch.no_grad():
        for given in calls.values():
            model(**given)  # what torch itself makes for each size is no compiler's time
        wait()
        if mode == "anyshape":
            f = anyshape.compile(model, backend=options.backend)
        else:
            f = torch.compile(model, backend=options.backend, dynamic=True if mode == "dynamic" else None)
        took = []
        for _ in range(2):
            began = time.perf_counter()
            for size in sizes(options):
                f(**calls[size])
                wait()
            took.append(time.perf_counter() - began)
        wrong = [list(size) for size, given in calls.items() if not _close(f(**given)[0], model(**given)[0])]
    result = {"cold": took[0], "steady": took[1], "wrong": wrong}
    if mode == "anyshape":
        return {**result, "programs": len(f.programs), "fallbacks": f.fallbacks}
    return {**result, "programs": torch._dynamo.utils.counters["stats"]["unique_graphs"], "fallbacks": {}}


def _close(got: Any, want: Any) -> bool:
    if got.shape != want.shape or got.stride() != want.stride():
        return False
    bound = CLOSE[str(want.dtype).removeprefix("torch.")] * max(float(want.float().norm()), 1e-6)
    return bool((got.float() - want.float()).norm() <= bound)


def jobs(options: argparse.Namespace) -> Iterator[tuple[str, bool]]:
    for name in options.only or MODELS:
        yield name, False
        if MODELS[name].takes_mask:
            yield name, True


def in_a_process(name: str, mode: str, masked: bool, argv: list[str], seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        cold = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "TRITON_CACHE_DIR": f"{folder}/triton"}
        one = ["--only", name, "--mode", mode, "--report", str(report), *(["--masked"] if masked else [])]
        command = [sys.executable, "-m", "benchmarks.zoo.requests", *argv, *one]
        try:
            done = subprocess.run(command, env={**os.environ, **cold}, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            return {"error": f"not done after {seconds:.0f} s"}
        if done.returncode:
            return {"error": (done.stderr.strip().splitlines() or ["it ended"])[-1][:200]}
        return dict(json.loads(report.read_text()))


def verdict(found: dict[str, dict[str, Any]]) -> str:
    """What of the figures is not as it should be; nothing where all is."""
    ours, stocks = found["anyshape"], [r for m, r in found.items() if m != "anyshape" and "error" not in r]
    if "error" in ours:
        return "error"
    missed = [word for word, is_so in (("wrong", ours["wrong"]), ("eager runs", ours["fallbacks"])) if is_so]
    missed += ["programs"] if ours["programs"] > 2 else []
    for key in ("cold", "steady"):
        if stocks and ours[key] > min(r[key] for r in stocks):
            missed.append(key)
    return ", ".join(missed)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--trace", action="store_true", help=argparse.SUPPRESS)
    made.add_argument("--device", choices=LIMITS, default="cuda")
    made.add_argument("--only", nargs="+", choices=MODELS, metavar="NAME")
    made.add_argument("--backend", default="inductor")
    for name in ("layers", "width", "calls", "rows", "longest"):
        made.add_argument(f"--{name}", type=int)
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--timeout", type=float, default=1800.0, help="seconds, of one model in one mode")
    made.add_argument("--json", type=pathlib.Path, default=pathlib.Path("build/zoo-trace.json"))
    for name in ("mode", "report"):  # of a process of it
        made.add_argument(f"--{name}", help=argparse.SUPPRESS)
    made.add_argument("--masked", action="store_true", help=argparse.SUPPRESS)
    return made


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    for name, value in zip(("layers", "width", "calls", "rows", "longest"), LIMITS[options.device], strict=True):
        if getattr(options, name) is None:
            setattr(options, name, value)
    if options.mode:
        result = serve(options.only[0], options.mode, options.masked, options)
        pathlib.Path(options.report).write_text(json.dumps(result))
        return
    results: dict[str, Any] = {}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    print(f"{'':24}{'mode':10}{'programs':>9}{'eager':>7}{'wrong':>7}{'cold s':>9}{'steady s':>10}", flush=True)
    for name, masked in jobs(options):
        label = f"{name}, {'a mask' if masked else 'no mask'}"
        found = results[label] = {}
        for mode in MODES:
            r = found[mode] = in_a_process(name, mode, masked, argv, options.timeout)
            if "error" in r:
                print(f"{label:24}{mode:10}  {r['error']}", flush=True)
                continue
            eager, wrong = sum(r["fallbacks"].values()), len(r["wrong"])
            figures = f"{r['programs']:>9}{eager:>7}{wrong:>7}{r['cold']:>9.1f}{r['steady']:>10.3f}"
            print(f"{label:24}{mode:10}{figures}", flush=True)
        missed = verdict(found)
        print(f"{label:24}{'missed: ' + missed if missed else 'all bars hold'}", flush=True)
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
