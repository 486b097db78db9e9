"""Mixtures of experts of three styles, as transformers writes them: any number of tokens, experts that get none."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import anyshape

transformers = pytest.importorskip("transformers")

WORDS: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 32, "moe_intermediate_size": 32, "num_local_experts": 4, "num_experts": 4,
    "num_experts_per_tok": 2, "n_routed_experts": 4, "n_group": 2, "topk_group": 1, "n_shared_experts": 1,
}  # fmt: skip


def _config(name: str, how: str) -> Any:
    config = getattr(transformers, name)(**WORDS)
    config._experts_implementation = how
    return config


def _mixtral(how: str) -> torch.nn.Module:
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    return MixtralSparseMoeBlock(_config("MixtralConfig", how))


def _qwen(how: str) -> torch.nn.Module:
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

    return Qwen3MoeSparseMoeBlock(_config("Qwen3MoeConfig", how))


def _deepseek(how: str) -> torch.nn.Module:
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE

    return DeepseekV3MoE(_config("DeepseekV3Config", how))


BLOCKS = {"mixtral": _mixtral, "qwen": _qwen, "deepseek": _deepseek}


@pytest.mark.parametrize("make", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("how", ["grouped_mm", "batched_mm"])
def test_one_program(make: Any, how: str) -> None:
    block = make(how).eval()
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    f = anyshape.compile(block, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        for tokens in (5, 200, 1, 2, 64, 0):
            x = torch.randn(1, tokens, 16)
            torch.testing.assert_close(f(x), block(x), atol=1e-5, rtol=1e-4)
            alike = x[:, :1].expand(1, tokens, 16).contiguous()  # all go to the same two experts
            torch.testing.assert_close(f(alike), block(alike), atol=1e-5, rtol=1e-4)
    assert f.fallbacks == {}
    assert len(f.programs) == 1
