"""Models of text: decoders, mixtures of experts, state spaces, encoders, encoder-decoders."""

from __future__ import annotations

from typing import Any

from benchmarks.zoo.rows import SMALL, TWO_SIDED, WORDS, Row, padded_text, text, text_to_text

TWO_KINDS = ["sliding_attention", "full_attention"]
ROPE = {"num_key_value_heads": 1, "head_dim": 16}
GPT = {"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 128, "n_inner": 64}
EXPERTS = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
DEEPSEEK = {
    **EXPERTS, "n_routed_experts": 4, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 0, "q_lora_rank": 16,
    "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 16, "n_shared_experts": 1,
}  # fmt: skip


def _row(name: str, model: str, kind: str, inputs: Any = text, trains: bool = False, **config: Any) -> Row:
    return Row(name, model, kind, {**SMALL, **config}, inputs, trains)


def _decoder(name: str, model: str, *, trains: bool = False, inputs: Any = text, **config: Any) -> Row:
    return _row(name, model, "decoder", inputs, trains, **config)


def _moe(name: str, model: str, **config: Any) -> Row:
    return _row(name, model, "experts", **config)


def _encoder(name: str, model: str, *, trains: bool = False, inputs: Any = padded_text, **config: Any) -> Row:
    return _row(name, model, "encoder", inputs, trains, **config)


def _pair(name: str, model: str, *, trains: bool = False, **config: Any) -> Row:
    return _row(name, model, "encoder-decoder", text_to_text, trains, **{**TWO_SIDED, **config})


ROWS = [
    _decoder("llama", "LlamaForCausalLM", trains=True, **ROPE),
    _decoder("llama, padded", "LlamaForCausalLM", trains=True, inputs=padded_text, **ROPE),
    _decoder("mistral", "MistralForCausalLM", trains=True, sliding_window=8, **ROPE),
    _decoder("qwen2", "Qwen2ForCausalLM", trains=True, **ROPE),
    _decoder("qwen3", "Qwen3ForCausalLM", trains=True, **ROPE),
    _decoder("gemma", "GemmaForCausalLM", trains=True, **ROPE),
    _decoder("gemma2", "Gemma2ForCausalLM", sliding_window=8, num_hidden_layers=2, layer_types=TWO_KINDS, **ROPE),
    _decoder("gemma3", "Gemma3ForCausalLM", sliding_window=8, num_hidden_layers=2, layer_types=TWO_KINDS, **ROPE),
    _decoder("phi", "PhiForCausalLM", trains=True),
    _decoder("phi3", "Phi3ForCausalLM", **ROPE),
    _decoder("gpt2", "GPT2LMHeadModel", trains=True, **GPT),
    _decoder("gpt-neo", "GPTNeoForCausalLM", num_layers=2, num_heads=2, attention_types=[[["global", "local"], 1]], num_hidden_layers=2, window_size=8),
    _decoder("gpt-neox", "GPTNeoXForCausalLM", trains=True),
    _decoder("gptj", "GPTJForCausalLM", rotary_dim=8, **GPT),
    _decoder("codegen", "CodeGenForCausalLM", rotary_dim=8, num_attention_heads=4, **{**GPT, "n_head": 4}),
    _decoder("opt", "OPTForCausalLM", ffn_dim=64, word_embed_proj_dim=32),
    _decoder("bloom", "BloomForCausalLM", n_layer=1, n_head=2),
    _decoder("falcon", "FalconForCausalLM"),
    _decoder("mpt", "MptForCausalLM", d_model=32, n_heads=2, n_layers=1, max_seq_len=128),
    _decoder("stablelm", "StableLmForCausalLM", **ROPE),
    _decoder("starcoder2", "Starcoder2ForCausalLM", **ROPE),
    _decoder("olmo", "OlmoForCausalLM", **ROPE),
    _decoder("olmo2", "Olmo2ForCausalLM", **ROPE),
    _decoder("cohere", "CohereForCausalLM", **ROPE),
    _decoder("granite", "GraniteForCausalLM", trains=True, **ROPE),
    _decoder("persimmon", "PersimmonForCausalLM"),
    _decoder("biogpt", "BioGptForCausalLM"),
    _decoder("xglm", "XGLMForCausalLM", d_model=32, num_layers=1, attention_heads=2, ffn_dim=64),
    _decoder("glm", "GlmForCausalLM", **ROPE),
    _decoder("nemotron", "NemotronForCausalLM", **ROPE),
    _moe("mixtral", "MixtralForCausalLM", **EXPERTS, **ROPE),
    _moe("qwen2-moe", "Qwen2MoeForCausalLM", **EXPERTS, **ROPE, shared_expert_intermediate_size=32),
    _moe("qwen3-moe", "Qwen3MoeForCausalLM", **EXPERTS, **ROPE),
    _moe("deepseek-v2", "DeepseekV2ForCausalLM", **DEEPSEEK, num_key_value_heads=2),
    _moe("deepseek-v3", "DeepseekV3ForCausalLM", **DEEPSEEK, num_key_value_heads=2),
    _moe("olmoe", "OlmoeForCausalLM", **EXPERTS, num_key_value_heads=1),
    _moe("granitemoe", "GraniteMoeForCausalLM", **EXPERTS, num_key_value_heads=1),
    _moe("phimoe", "PhimoeForCausalLM", **EXPERTS, num_key_value_heads=1),
    _moe("gpt-oss", "GptOssForCausalLM", **EXPERTS, **ROPE, sliding_window=8, num_hidden_layers=2, layer_types=TWO_KINDS),
    _row("mamba", "MambaForCausalLM", "state space", state_size=8),
    _row("mamba2", "Mamba2ForCausalLM", "state space", state_size=8, num_heads=4, head_dim=16, n_groups=1, chunk_size=8),
    _row("falcon-mamba", "FalconMambaForCausalLM", "state space", state_size=8),
    _row("recurrent-gemma", "RecurrentGemmaForCausalLM", "state space", num_hidden_layers=3, num_key_value_heads=1, lru_width=32, attention_window_size=16),
    _encoder("bert", "BertModel", trains=True),
    _encoder("roberta", "RobertaModel", trains=True),
    _encoder("distilbert", "DistilBertModel", trains=True, dim=32, n_layers=1, n_heads=2, hidden_dim=64),
    _encoder("albert", "AlbertModel", trains=True, embedding_size=16),
    _encoder("electra", "ElectraModel", trains=True, embedding_size=16),
    _encoder("deberta-v2", "DebertaV2Model", relative_attention=True, position_buckets=16, pos_att_type=["p2c", "c2p"]),
    _encoder("mpnet", "MPNetModel"),
    _encoder("roformer", "RoFormerModel", embedding_size=32),
    _encoder("modernbert", "ModernBertModel", num_hidden_layers=2, local_attention=8, global_attn_every_n_layers=1),
    _encoder("mobilebert", "MobileBertModel", embedding_size=16, intra_bottleneck_size=16, true_hidden_size=16),
    _encoder("fnet", "FNetModel", inputs=text),
    _encoder("squeezebert", "SqueezeBertModel", embedding_size=32, q_groups=2, k_groups=2, v_groups=2, post_attention_groups=1, intermediate_groups=2, output_groups=2),
    _encoder("convbert", "ConvBertModel", embedding_size=32, head_ratio=1),
    Row("funnel", "FunnelModel", "encoder", {"vocab_size": WORDS, "d_model": 32, "n_head": 2, "d_head": 16, "d_inner": 64, "block_sizes": [1, 1], "num_decoder_layers": 1}, text, unit=False),
    _pair("t5", "T5ForConditionalGeneration", trains=True),
    _pair("mt5", "MT5ForConditionalGeneration"),
    _pair("bart", "BartForConditionalGeneration"),
    _pair("mbart", "MBartForConditionalGeneration"),
    _pair("pegasus", "PegasusForConditionalGeneration"),
    _pair("marian", "MarianMTModel"),
    _pair("blenderbot", "BlenderbotForConditionalGeneration"),
    _pair("m2m100", "M2M100ForConditionalGeneration"),
    _pair("switch", "SwitchTransformersForConditionalGeneration", num_hidden_layers=2, num_layers=2, decoder_layers=2, encoder_layers=2, num_experts=4, num_sparse_encoder_layers=1, num_sparse_decoder_layers=1),
]  # fmt: skip
