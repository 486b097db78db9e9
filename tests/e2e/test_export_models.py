"""Models of the installed transformers, exported with free batch and length: equal to eager at every size."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape

T = pytest.importorskip("transformers")

SIZES = [(2, 16), (1, 1), (2, 2), (3, 1), (1, 9), (5, 7), (0, 5), (2, 0), (7, 129)]
COMMON: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 100,
    "max_position_embeddings": 256,
}
TOKENS: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "use_cache": False}
GPT2: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 100, "n_positions": 256}
OPT: dict[str, Any] = {k: v for k, v in COMMON.items() if k != "intermediate_size"}
DISTIL: dict[str, Any] = {"dim": 32, "n_layers": 1, "n_heads": 2, "hidden_dim": 64, "vocab_size": 100}
T5: dict[str, Any] = {"vocab_size": 100, "d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2}
VIT: dict[str, Any] = {k: v for k, v in COMMON.items() if k not in ("vocab_size", "max_position_embeddings")}

MODELS: dict[str, Callable[[], Any]] = {
    "distilbert": lambda: T.DistilBertModel(T.DistilBertConfig(max_position_embeddings=256, **DISTIL)),
    "vit": lambda: T.ViTModel(T.ViTConfig(image_size=32, patch_size=8, **VIT)),
    "llama": lambda: T.LlamaForCausalLM(T.LlamaConfig(num_key_value_heads=1, **COMMON, **TOKENS)),
    "qwen2": lambda: T.Qwen2ForCausalLM(T.Qwen2Config(num_key_value_heads=1, **COMMON, **TOKENS)),
    "gemma": lambda: T.GemmaForCausalLM(T.GemmaConfig(num_key_value_heads=1, head_dim=16, **COMMON, **TOKENS)),
    "mistral": lambda: T.MistralForCausalLM(T.MistralConfig(num_key_value_heads=1, **COMMON, **TOKENS)),
    "gpt2": lambda: T.GPT2LMHeadModel(T.GPT2Config(**GPT2, **TOKENS)),
    "opt": lambda: T.OPTForCausalLM(T.OPTConfig(ffn_dim=64, word_embed_proj_dim=32, **OPT, **TOKENS)),
    "phi": lambda: T.PhiForCausalLM(T.PhiConfig(**COMMON, **TOKENS)),
    "gpt_neox": lambda: T.GPTNeoXForCausalLM(T.GPTNeoXConfig(**COMMON, **TOKENS)),
    "bert": lambda: T.BertModel(T.BertConfig(**COMMON)),
    "roberta": lambda: T.RobertaModel(T.RobertaConfig(**COMMON)),
    "albert": lambda: T.AlbertModel(T.AlbertConfig(embedding_size=16, **COMMON)),
    "electra": lambda: T.ElectraModel(T.ElectraConfig(embedding_size=16, **COMMON)),
    "t5": lambda: T.T5EncoderModel(T.T5Config(**T5)),
}
QUICK = ("distilbert", "vit")
# See convolutions-of-any-batch in docs/reference/known-torch-bugs.md.
CONFIG = {"layout_optimization": False}
NAMES = [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in MODELS]


class First(torch.nn.Module):
    """The model with a tensor for its result."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.model(x, return_dict=False)[0]
        return result


def inputs(name: str, batch: int, length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * batch + length)
    if name == "vit":
        return torch.randn(batch, 3, 32, 32, generator=generator)
    return torch.randint(3, 100, (batch, length), generator=generator)


def exported(name: str) -> tuple[Any, Any]:
    model = First(MODELS[name]().eval())
    shapes = {"x": "batch 3 32 32"} if name == "vit" else {"x": "batch length"}
    with torch.no_grad():
        return model, anyshape.export(model, (inputs(name, 2, 16),), shapes=shapes, behaviors="all")


def check(name: str, model: Any, call: Callable[[torch.Tensor], torch.Tensor]) -> None:
    for size in SIZES:
        x = inputs(name, *size)
        with torch.no_grad():
            try:
                want = model(x)
            except Exception:
                want = None
            if want is None:
                continue
            torch.testing.assert_close(call(x), want, atol=1e-3, rtol=1e-3, equal_nan=True, msg=f"{name} at {size}")


@pytest.mark.parametrize("name", NAMES)
def test_right_at_every_size(name: str) -> None:
    model, package = exported(name)
    for behavior in package.behaviors:
        free = behavior.program.graph.find_nodes(op="placeholder")[-1].meta["val"].shape[:2]
        pinned = [int(n) for n in free if not isinstance(n, torch.SymInt)]
        assert all(n in (0, 1, 3) for n in pinned)  # a behavior for 0 or for 1; an image's 3 channels
    check(name, model, package)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_right_in_aotinductor(name: str) -> None:
    model, package = exported(name)
    compiled: dict[int, Any] = {}

    def call(x: torch.Tensor) -> torch.Tensor:
        behavior = package.behavior_for(x)
        if id(behavior) not in compiled:
            path = tempfile.mktemp(suffix=".pt2")
            made = torch._inductor.aoti_compile_and_package(
                behavior.program, package_path=path, inductor_configs=CONFIG
            )
            compiled[id(behavior)] = torch._inductor.aoti_load_package(made)
        result: torch.Tensor = compiled[id(behavior)](x)
        return result

    check(name, model, call)
