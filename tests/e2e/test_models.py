"""Models of the installed transformers, small and with random weights: equal to eager, two programs at most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import anyshape
from anyshape.testing import expect_programs

transformers = pytest.importorskip("transformers")

SIZES = [(2, 16), (3, 24), (1, 16), (1, 1), (5, 7)]
VOCABULARY = 128
COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}


def _tokens(batch: int, length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * batch + length)
    return torch.randint(3, VOCABULARY, (batch, length), generator=generator)


def _text(batch: int, length: int) -> dict[str, torch.Tensor]:
    return {"input_ids": _tokens(batch, length)}


def _text_to_text(batch: int, length: int) -> dict[str, torch.Tensor]:
    return {"input_ids": _tokens(batch, length), "decoder_input_ids": _tokens(batch, length)}


def _image(batch: int, length: int) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(batch, 3, 64, 64)}


def _speech(batch: int, length: int) -> dict[str, torch.Tensor]:
    return {"input_features": torch.randn(batch, 16, 128), "decoder_input_ids": _tokens(batch, length)}


def _llama() -> torch.nn.Module:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(num_key_value_heads=2, **COMMON))


def _bert() -> torch.nn.Module:
    return transformers.BertModel(transformers.BertConfig(**COMMON))


def _t5() -> torch.nn.Module:
    config = transformers.T5Config(vocab_size=VOCABULARY, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4)
    return transformers.T5ForConditionalGeneration(config)


def _vit() -> torch.nn.Module:
    sizes = {k: v for k, v in COMMON.items() if k not in ("vocab_size", "max_position_embeddings")}
    return transformers.ViTModel(transformers.ViTConfig(image_size=64, patch_size=8, **sizes))


def _mixtral() -> torch.nn.Module:
    return transformers.MixtralForCausalLM(
        transformers.MixtralConfig(num_key_value_heads=2, num_local_experts=4, **COMMON)
    )


def _whisper() -> torch.nn.Module:
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_source_positions=64,
        max_target_positions=64,
        num_mel_bins=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    return transformers.WhisperForConditionalGeneration(config)


def _tensors(output: Any) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(output.to_tuple())
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        pytest.param(_llama, _text, id="llama"),
        pytest.param(_vit, _image, id="vit"),
        pytest.param(_bert, _text, id="bert", marks=pytest.mark.slow),
        pytest.param(_t5, _text_to_text, id="t5", marks=pytest.mark.slow),
        pytest.param(_mixtral, _text, id="mixtral", marks=pytest.mark.slow),
        pytest.param(_whisper, _speech, id="whisper", marks=pytest.mark.slow),
    ],
)
def test_equal_to_eager(make: Callable[[], Any], inputs: Callable[[int, int], dict[str, torch.Tensor]]) -> None:
    model = make().eval()
    f = anyshape.compile(model, backend="aot_eager")
    with torch.no_grad(), expect_programs(2, at_most=True):
        for size in SIZES:
            given = inputs(*size)
            got, want = _tensors(f(**given)), _tensors(model(**given))
            assert len(got) == len(want) > 0
            for mine, theirs in zip(got, want, strict=True):
                torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)
    assert f.fallbacks == {}


@pytest.mark.slow
def test_llama_trains() -> None:
    model = _llama()
    model.config.use_cache = False
    f = anyshape.compile(model, backend="aot_eager")
    with expect_programs(2, at_most=True):
        for size in SIZES:
            given = _text(*size)
            grads = []
            for call in (f, model):
                model.zero_grad()
                call(**given).logits.square().mean().backward()
                grads.append([p.grad.clone() for p in model.parameters()])
            for mine, theirs in zip(*grads, strict=True):
                torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)
    assert f.fallbacks == {}


@pytest.mark.slow
@pytest.mark.parametrize("cached", ["StaticCache", "DynamicCache"])
def test_generates_on_two_programs(cached: str) -> None:
    """Prefill and decoding, for prompts of several batches and lengths, each with a cache of its own."""
    model = _llama().eval()
    f = anyshape.compile(model, backend="aot_eager", fullgraph=True)
    room = {"max_cache_len": 32} if cached == "StaticCache" else {}

    def generate(call: Callable[..., Any], prompt: torch.Tensor) -> torch.Tensor:
        cache = getattr(transformers, cached)(config=model.config, **room)
        tokens = step = prompt
        for _ in range(3):
            step = call(input_ids=step, past_key_values=cache, use_cache=True).logits[:, -1:].argmax(-1)
            tokens = torch.cat([tokens, step], 1)
        return tokens

    with torch.no_grad(), expect_programs(2, f):
        for size in [(2, 5), (1, 9), (3, 4)]:
            prompt = _text(*size)["input_ids"]
            assert torch.equal(generate(f, prompt), generate(model, prompt))
    assert f.fallbacks == {}
