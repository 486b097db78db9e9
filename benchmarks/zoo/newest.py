"""The newest architectures, none of which had been looked at before they were tried."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.zoo.libraries import image
from benchmarks.zoo.pictures import PATCHES, SIDES
from benchmarks.zoo.rows import (
    SMALL,
    TWO_SIDED,
    WORDS,
    Inputs,
    Row,
    fixed_picture,
    generator,
    padded_text,
    text,
    text_to_text,
    tokens,
    wave,
)
from benchmarks.zoo.sounds import CONVOLUTIONS
from benchmarks.zoo.text import DEEPSEEK, EXPERTS, GPT, ROPE, TWO_KINDS

# A row of a table is a line.
# fmt: off
WINDOWS = {"sliding_window": 8, "num_hidden_layers": 2, "layer_types": TWO_KINDS, **ROPE}
TOKENS = {**SIDES, **PATCHES}
LINEAR = {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"], "linear_num_value_heads": 2, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8, **ROPE}
MAMBA = {"mamba_d_state": 8, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_chunk_size": 8}

SERIES = {
    "prediction_length": 4, "context_length": 16, "lags_sequence": [1, 2, 3], "num_time_features": 2, "d_model": 32, "encoder_layers": 1,
    "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
    "num_parallel_samples": 4, "moving_average": 3,
}  # fmt: skip


def embedded(width: int, word: str) -> Callable[[int, int], Inputs]:
    return lambda batch, length: {word: torch.randn(batch, length, width, generator=generator(batch, length))}


def one_channel(least: int, step: int) -> Callable[[int, int], Inputs]:
    """Samples of sound with an axis for the channel."""
    inputs = wave(least, step)
    return lambda batch, length: {"input_values": inputs(batch, length)["input_values"][:, None]}


def heard(batch: int, length: int) -> Inputs:
    return {**wave(1000, 64)(batch, length), "decoder_input_ids": tokens(batch, max(length // 2, 1))}


def padded_pair(batch: int, length: int) -> Inputs:
    return {**padded_text(batch, length), **text_to_text(batch, length)}


def series(batch: int, length: int) -> Inputs:
    """Observed values and features of their times; only the batch varies."""
    drawn = generator(batch, 0)
    past, future = (torch.randn(batch, n, generator=drawn) for n in (19, 4))
    times = {f"{k}_time_features": torch.randn(batch, n, 2, generator=drawn) for k, n in (("past", 19), ("future", 4))}
    return {"past_values": past, "past_observed_mask": torch.ones(batch, 19), "future_values": future, **times}


def decisions(batch: int, length: int) -> Inputs:
    drawn = generator(batch, length)
    made = {"states": 3, "actions": 2, "returns_to_go": 1}
    steps = torch.arange(length)[None, :].expand(batch, length).contiguous()
    shown = {"timesteps": steps, "attention_mask": torch.ones(batch, length)}
    return {**{k: torch.randn(batch, length, n, generator=drawn) for k, n in made.items()}, **shown}


DECODERS = {
    "arcee": ("ArceeForCausalLM", ROPE),
    "cwm": ("CwmForCausalLM", WINDOWS),
    "hunyuan": ("HunYuanDenseV1ForCausalLM", ROPE),
    "hyperclovax": ("HyperCLOVAXForCausalLM", ROPE),
    "jais2": ("Jais2ForCausalLM", ROPE),
    "ministral": ("MinistralForCausalLM", WINDOWS),
    "ministral3": ("Ministral3ForCausalLM", ROPE),
    "seed-oss": ("SeedOssForCausalLM", ROPE),
    "vaultgemma": ("VaultGemmaForCausalLM", WINDOWS),
    "youtu": ("YoutuForCausalLM", DEEPSEEK),
    "minicpm3": ("MiniCPM3ForCausalLM", {**DEEPSEEK, "num_key_value_heads": 2}),
    "granite-swa": ("GraniteSWAForCausalLM", WINDOWS),
    "gpt-neox-japanese": ("GPTNeoXJapaneseForCausalLM", {}),
    "gemma3n": ("Gemma3nForCausalLM", {**WINDOWS, "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 8, "laurel_rank": 4, "vocab_size_per_layer_input": 100, "activation_sparsity_pattern": [0.0, 0.0]}),
    "gemma4": ("Gemma4ForCausalLM", {**WINDOWS, "global_head_dim": 16, "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 100}),
    "imagegpt": ("ImageGPTModel", GPT),
    "reformer": ("ReformerModelWithLMHead", {"attn_layers": ["local", "lsh"], "attention_head_size": 16, "axial_pos_embds": False, "local_attn_chunk_length": 8, "lsh_attn_chunk_length": 8, "feed_forward_size": 64, "is_decoder": True, "num_buckets": 4, "hash_seed": 0}),
}
MIXTURES = {
    "afmoe": ("AfmoeForCausalLM", {**DEEPSEEK, **WINDOWS, "num_dense_layers": 1, "num_shared_experts": 1, "num_expert_groups": 1, "global_attn_every_n_layers": 2}),
    "flex-olmo": ("FlexOlmoForCausalLM", ROPE),
    "granitemoe-shared": ("GraniteMoeSharedForCausalLM", {"num_key_value_heads": 1, "shared_intermediate_size": 32}),
    "lfm2-moe": ("Lfm2MoeForCausalLM", {"num_hidden_layers": 2, "layer_types": ["conv", "full_attention"], "num_dense_layers": 1, **ROPE}),
    "longcat-flash": ("LongcatFlashForCausalLM", {**DEEPSEEK, "ffn_hidden_size": 64, "expert_ffn_hidden_size": 32, "zero_expert_num": 2, "moe_topk": 2, "num_layers": 1, "num_key_value_heads": 2}),
    "minimax-m2": ("MiniMaxM2ForCausalLM", ROPE),
    "mistral4": ("Mistral4ForCausalLM", {**DEEPSEEK, "num_key_value_heads": 2}),
    "glm4-moe-lite": ("Glm4MoeLiteForCausalLM", {**DEEPSEEK, "num_key_value_heads": 2}),
    "glm-moe-dsa": ("GlmMoeDsaForCausalLM", {**DEEPSEEK, "num_key_value_heads": 2, "index_topk": 8, "index_head_dim": 16, "index_n_heads": 2}),
    "deepseek-v3.2": ("DeepseekV32ForCausalLM", {**DEEPSEEK, "num_key_value_heads": 2, "index_topk": 8, "index_head_dim": 16, "index_n_heads": 2}),
    "exaone-moe": ("ExaoneMoeForCausalLM", {**DEEPSEEK, **WINDOWS}),
    "solar-open": ("SolarOpenForCausalLM", {**DEEPSEEK, **ROPE}),
    "qwen3.5-moe": ("Qwen3_5MoeForCausalLM", {**LINEAR, "shared_expert_intermediate_size": 32}),
    "mimo-v2": ("MiMoV2FlashForCausalLM", {**DEEPSEEK, **WINDOWS, "v_head_dim": 16}),
}
STATES = {
    "qwen3.5": ("Qwen3_5ForCausalLM", LINEAR),
    "bamba": ("BambaForCausalLM", {**MAMBA, "num_hidden_layers": 2, "attn_layer_indices": [1], "num_key_value_heads": 1}),
    "falcon-h1": ("FalconH1ForCausalLM", {**MAMBA, "mamba_d_ssm": 64, "num_key_value_heads": 1, "head_dim": 16}),
    "granitemoe-hybrid": ("GraniteMoeHybridForCausalLM", {**MAMBA, **EXPERTS, "num_hidden_layers": 2, "layer_types": ["mamba", "attention"], "num_key_value_heads": 1, "shared_intermediate_size": 32}),
    "nemotron-h": ("NemotronHForCausalLM", {"layers_block_type": ["mamba", "attention", "mlp"], "num_hidden_layers": 3, "ssm_state_size": 8, "mamba_num_heads": 4, "mamba_head_dim": 16, "n_groups": 1, "chunk_size": 8, "num_key_value_heads": 1, "head_dim": 16}),
    "zamba2": ("Zamba2ForCausalLM", {"num_hidden_layers": 2, "layers_block_type": ["mamba", "hybrid"], "hybrid_layer_ids": [1], "mamba_d_state": 8, "mamba_ngroups": 1, "n_mamba_heads": 4, "num_key_value_heads": 2, "chunk_size": 8, "num_mem_blocks": 1, "adapter_rank": 4}),
    "olmo-hybrid": ("OlmoHybridForCausalLM", LINEAR),
}
ENCODERS = {
    "xlm-roberta-xl": ("XLMRobertaXLModel", {}),
    "bigbird, sparse": ("BigBirdModel", {"attention_type": "block_sparse", "block_size": 4, "num_random_blocks": 1}),
    "canine": ("CanineModel", {"type_vocab_size": 4, "num_hash_functions": 2, "num_hash_buckets": 128, "local_transformer_stride": 8, "downsampling_rate": 4, "max_position_embeddings": 512}),
    "yoso": ("YosoModel", {"use_expectation": True}),
    "mra": ("MraModel", {"block_per_row": 1}),
    "lilt": ("LiltModel", {"hidden_size": 48, "channel_shrink_ratio": 4}),
    "data2vec-text": ("Data2VecTextModel", {}),
    "roc-bert": ("RoCBertModel", {"enable_pronunciation": False, "enable_shape": False}),
    "visual-bert": ("VisualBertModel", {}),
    "tapas": ("TapasModel", {}),
    "markuplm": ("MarkupLMModel", {"xpath_unit_hidden_size": 8, "max_depth": 4}),
    "gte": ("GteModel", {}),
    "jina-v3": ("JinaEmbeddingsV3Model", {}),
    "mobilebert, plain": ("MobileBertModel", {"embedding_size": 16, "true_hidden_size": 32, "use_bottleneck": False, "trigram_input": False}),
    "xlm-roberta": ("XLMRobertaModel", {}),
}
PAIRS = {
    "led": ("LEDForConditionalGeneration", {"attention_window": 8, "max_encoder_position_embeddings": 128, "max_decoder_position_embeddings": 128}),
    "blenderbot-small": ("BlenderbotSmallForConditionalGeneration", {}),
    "mvp": ("MvpForConditionalGeneration", {}),
    "t5gemma": ("T5GemmaForConditionalGeneration", {"encoder": {**SMALL, **WINDOWS}, "decoder": {**SMALL, **WINDOWS, "cross_attention_hidden_size": 32}}),
}
FIXED = {
    "aimv2": ("Aimv2VisionModel", {**TOKENS}),
    "levit": ("LevitModel", {"image_size": 32, "hidden_sizes": [16, 24, 32], "num_attention_heads": [1, 2, 2], "depths": [1, 1, 1], "key_dim": [8, 8, 8], "patch_size": 16}),
    "hiera": ("HieraModel", {"image_size": [32, 32], "patch_stride": [4, 4], "patch_kernel": [7, 7], "patch_padding": [3, 3], "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "masked_unit_size": [4, 4], "query_stride": [2, 2], "num_query_pool": 1}),
    "dpt": ("DPTForDepthEstimation", {**TOKENS, "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": [8, 8, 16, 16], "fusion_hidden_size": 8}),
    "vitdet": ("VitDetModel", {**TOKENS, "window_size": 2, "window_block_indices": [0]}),
    "vit-mae, masked": ("ViTMAEForPreTraining", {**TOKENS, "decoder_hidden_size": 16, "decoder_num_hidden_layers": 1, "decoder_num_attention_heads": 2, "decoder_intermediate_size": 32, "mask_ratio": 0.0}),
}
ANY_SIDE = {
    "cvt": ("CvtModel", 16, {"embed_dim": [8, 8, 16], "num_heads": [1, 1, 2], "depth": [1, 2, 3]}),
    "mobilevit": ("MobileViTModel", 32, {"hidden_sizes": [16, 16, 16], "neck_hidden_sizes": [8, 8, 8, 16, 16, 16, 32], "num_attention_heads": 2, "image_size": 64}),
    "mobilevit-v2": ("MobileViTV2Model", 32, {"width_multiplier": 0.25}),
    "glpn": ("GLPNForDepthEstimation", 32, {"num_encoder_blocks": 4, "depths": [1, 1, 1, 1], "hidden_sizes": [8, 8, 8, 8], "num_attention_heads": [1, 1, 2, 2], "decoder_hidden_size": 8, "sr_ratios": [2, 2, 1, 1]}),
    "textnet": ("TextNetModel", 8, {"stem_num_channels": 3, "stem_out_channels": 8, "hidden_sizes": [8, 8, 8, 8, 16], "conv_layer_kernel_sizes": [[[3, 3]], [[3, 3]], [[3, 1]], [[1, 3]]], "conv_layer_strides": [[2], [2], [2], [2]]}),
    "swin2sr": ("Swin2SRModel", 8, {"image_size": 32, "patch_size": 1, "embed_dim": 8, "depths": [2], "num_heads": [2], "window_size": 4, "upscale": 2}),
    "segformer, decoder": ("SegformerForSemanticSegmentation", 8, {"num_encoder_blocks": 4, "depths": [1, 1, 1, 1], "hidden_sizes": [8, 8, 16, 16], "num_attention_heads": [1, 1, 2, 2], "decoder_hidden_size": 16, "sr_ratios": [4, 2, 1, 1]}),
    "superpoint": ("SuperPointForKeypointDetection", 8, {"encoder_hidden_sizes": [8, 8, 8, 16], "decoder_hidden_size": 16, "descriptor_decoder_dim": 16}),
    "depth-anything": (
        "DepthAnythingForDepthEstimation",
        14,
        {
            "backbone_config": {"model_type": "dinov2", "image_size": 56, **SIDES, "num_hidden_layers": 4, "patch_size": 14, "out_indices": [1, 2, 3, 4], "reshape_hidden_states": False, "apply_layernorm": True},
            "reassemble_hidden_size": 32,
            "neck_hidden_sizes": [8, 8, 16, 16],
            "fusion_hidden_size": 8,
            "head_hidden_size": 8,
            "patch_size": 14,
        },
    ),
    "detr": (
        "DetrModel",
        32,
        {
            "use_timm_backbone": False,
            "use_pretrained_backbone": False,
            "backbone": None,
            "backbone_config": {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic", "out_features": ["stage2"]},
            "d_model": 32,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "num_queries": 6,
        },
    ),
}
SOUNDS = {
    "encodec": ("EncodecModel", one_channel(640, 320), {"upsampling_ratios": [4, 2], "num_filters": 4, "hidden_size": 16, "codebook_size": 1024, "num_lstm_layers": 1, "codebook_dim": 16, "target_bandwidths": [240.0]}),
    "dac": ("DacModel", one_channel(640, 64), {"encoder_hidden_size": 8, "downsampling_ratios": [2, 4], "upsampling_ratios": [4, 2], "decoder_hidden_size": 32, "n_codebooks": 2, "codebook_size": 32, "codebook_dim": 4}),
    "mimi": (
        "MimiModel",
        one_channel(640, 320),
        {**SMALL, "upsampling_ratios": [4, 2], "num_filters": 4, "codebook_size": 32, "codebook_dim": 16, "vector_quantization_hidden_dimension": 16, "num_quantizers": 2, "num_semantic_quantizers": 1, "upsample_groups": 32, "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 8},
    ),
    "sew": ("SEWModel", wave(400, 40), {**CONVOLUTIONS, "squeeze_factor": 2}),
    "sew-d": ("SEWDModel", wave(400, 40), {**CONVOLUTIONS, "squeeze_factor": 2, "position_buckets": 16}),
    "wav2vec2-conformer": ("Wav2Vec2ConformerModel", wave(400, 40), CONVOLUTIONS),
    "unispeech-sat": ("UniSpeechSatModel", wave(400, 40), CONVOLUTIONS),
    "moonshine": ("MoonshineModel", heard, {"encoder_num_hidden_layers": 1, "decoder_num_hidden_layers": 1, "encoder_num_attention_heads": 2, "decoder_num_attention_heads": 2, **{k: v for k, v in SMALL.items() if k != "num_attention_heads"}}),
}

LONG = {**SMALL, **TWO_SIDED, "local_radius": 4}
LOOSE = [
    Row("longt5", "LongT5ForConditionalGeneration", "encoder-decoder", {**LONG, "encoder_attention_type": "local"}, padded_pair),
    Row("longt5, global", "LongT5ForConditionalGeneration", "encoder-decoder", {**LONG, "global_block_size": 4, "encoder_attention_type": "transient-global"}, padded_pair),
    Row("xlnet", "XLNetLMHeadModel", "decoder", {"vocab_size": WORDS, "d_model": 32, "n_layer": 1, "n_head": 2, "d_inner": 64}, text),
    Row(
        "prophetnet",
        "ProphetNetForConditionalGeneration",
        "encoder-decoder",
        {"vocab_size": WORDS, "hidden_size": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_encoder_layers": 1, "num_decoder_layers": 1, "num_encoder_attention_heads": 2, "num_decoder_attention_heads": 2, "ngram": 2, "pad_token_id": 0, "max_position_embeddings": 128},
        text_to_text,
    ),
    Row("perceiver", "PerceiverModel", "encoder", {"d_model": 32, "d_latents": 16, "num_latents": 4, "num_blocks": 1, "num_self_attends_per_block": 1, "num_self_attention_heads": 2, "num_cross_attention_heads": 2}, embedded(32, "inputs")),
    Row("decision-transformer", "DecisionTransformerModel", "series", {"state_dim": 3, "act_dim": 2, "hidden_size": 32, "n_layer": 1, "n_head": 2, "max_ep_len": 128}, decisions),
    Row("informer", "InformerModel", "time series", SERIES, series),
    Row("autoformer", "AutoformerModel", "time series", SERIES, series),
    Row("time-series-transformer", "TimeSeriesTransformerModel", "time series", SERIES, series),
]
ROWS = [
    *LOOSE,
    *(Row(n, m, "decoder", {**SMALL, **c}, text) for n, (m, c) in DECODERS.items()),
    *(Row(n, m, "experts", {**SMALL, **EXPERTS, **c}, text) for n, (m, c) in MIXTURES.items()),
    *(Row(n, m, "state space", {**SMALL, **c}, text) for n, (m, c) in STATES.items()),
    *(Row(n, m, "encoder", {**SMALL, **c}, padded_text) for n, (m, c) in ENCODERS.items()),
    *(Row(n, m, "encoder-decoder", {**SMALL, **TWO_SIDED, **c}, text_to_text) for n, (m, c) in PAIRS.items()),
    *(Row(n, m, "vision", c, fixed_picture(32), unit=False) for n, (m, c) in FIXED.items()),
    *(Row(n, m, "vision", c, image("pixel_values", step, 4), unit=False) for n, (m, step, c) in ANY_SIDE.items()),
    *(Row(n, m, "audio", c, i, unit=False) for n, (m, i, c) in SOUNDS.items()),
]  # fmt: skip
