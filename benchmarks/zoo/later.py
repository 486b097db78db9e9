"""Architectures that were tried without any of them having been looked at before."""

from __future__ import annotations

from benchmarks.zoo.pictures import PATCHES, SIDES
from benchmarks.zoo.rows import SMALL, TWO_SIDED, Row, fixed_picture, padded_text, picture, text, text_to_text
from benchmarks.zoo.text import DEEPSEEK, EXPERTS, GPT, ROPE, TWO_KINDS

WINDOWS = {"sliding_window": 8, "num_hidden_layers": 2, "layer_types": TWO_KINDS, **ROPE}
LANGUAGES = {"emb_dim": 32, "n_layers": 1, "n_heads": 2, "n_words": 100}
FOUR = {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1]}
TWO = {"hidden_sizes": [8, 16], "depths": [1, 1]}
TOKENS = {**SIDES, **PATCHES}

DECODERS = {
    "gpt-bigcode": ("GPTBigCodeForCausalLM", GPT),
    "openai-gpt": ("OpenAIGPTLMHeadModel", GPT),
    "bert-generation": ("BertGenerationDecoder", {"is_decoder": True}),
    "modernbert-decoder": ("ModernBertDecoderForCausalLM", {"num_hidden_layers": 2, "local_attention": 8}),
    "diffllama": ("DiffLlamaForCausalLM", {"num_key_value_heads": 2}),
    "llama, classes": ("LlamaForSequenceClassification", ROPE),
    "smollm3": ("SmolLM3ForCausalLM", ROPE),
    "ernie4.5": ("Ernie4_5ForCausalLM", ROPE),
    "helium": ("HeliumForCausalLM", ROPE),
    "glm4": ("Glm4ForCausalLM", ROPE),
    "bitnet": ("BitNetForCausalLM", ROPE),
    "apertus": ("ApertusForCausalLM", ROPE),
    "doge": ("DogeForCausalLM", ROPE),
    "nanochat": ("NanoChatForCausalLM", ROPE),
    "cohere2": ("Cohere2ForCausalLM", WINDOWS),
    "exaone4": ("Exaone4ForCausalLM", WINDOWS),
    "olmo3": ("Olmo3ForCausalLM", WINDOWS),
    "ctrl": ("CTRLLMHeadModel", {"n_embd": 32, "dff": 64, "n_layer": 1, "n_head": 2}),
}
MIXTURES = {
    "jetmoe": ("JetMoeForCausalLM", {"num_key_value_heads": 1, "kv_channels": 16}),
    "glm4-moe": ("Glm4MoeForCausalLM", {**DEEPSEEK, **ROPE}),
    "dots1": ("Dots1ForCausalLM", {**DEEPSEEK, **ROPE}),
    "llama4": ("Llama4ForCausalLM", {"intermediate_size_mlp": 64, "attention_chunk_size": 8, **ROPE}),
    "minimax": (
        "MiniMaxForCausalLM",
        {"block_size": 8, "num_hidden_layers": 2, "layer_types": ["full_attention", "linear_attention"], **ROPE},
    ),
    "ernie4.5-moe": (
        "Ernie4_5_MoeForCausalLM",
        {"moe_num_experts": 4, "moe_k": 2, "moe_layer_start_index": 0, **ROPE},
    ),
    "hunyuan-moe": ("HunYuanMoEV1ForCausalLM", {"moe_topk": 2, **ROPE}),
    "qwen3-next": (
        "Qwen3NextForCausalLM",
        {
            "num_hidden_layers": 2,
            "layer_types": ["linear_attention", "full_attention"],
            "linear_num_value_heads": 2,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "shared_expert_intermediate_size": 32,
            **ROPE,
        },
    ),
    "jamba": (
        "JambaForCausalLM",
        {
            "num_hidden_layers": 2,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "mamba_d_state": 8,
            "mamba_dt_rank": 4,
            **ROPE,
        },
    ),
}
STATES = {"lfm2": ("Lfm2ForCausalLM", {"num_hidden_layers": 2, "layer_types": ["conv", "full_attention"], **ROPE})}
ENCODERS = {
    "xlm": ("XLMModel", LANGUAGES),
    "flaubert": ("FlaubertModel", LANGUAGES),
    "camembert": ("CamembertModel", {}),
    "ernie": ("ErnieModel", {}),
    "esm": ("EsmModel", {"mask_token_id": 4}),
    "megatron-bert": ("MegatronBertModel", {}),
    "rembert": ("RemBertModel", {"input_embedding_size": 16}),
    "deberta": ("DebertaModel", {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    "ibert": ("IBertModel", {}),
    "nystromformer": ("NystromformerModel", {"segment_means_seq_len": 128, "num_landmarks": 128}),
    "roberta-prelayernorm": ("RobertaPreLayerNormModel", {}),
    "luke": ("LukeModel", {"entity_vocab_size": 10, "entity_emb_size": 16}),
    "layoutlm": ("LayoutLMModel", {}),
    "nomic-bert": ("NomicBertModel", {}),
    "xmod": ("XmodModel", {"languages": ["en"], "default_language": "en"}),
    "big-bird": ("BigBirdModel", {"attention_type": "original_full"}),
    "longformer": ("LongformerModel", {"attention_window": [8]}),
    "splinter": ("SplinterModel", {}),
    "eurobert": ("EuroBertModel", ROPE),
}
PAIRS = {
    "umt5": ("UMT5ForConditionalGeneration", {}),
    "fsmt": ("FSMTForConditionalGeneration", {"src_vocab_size": 100, "tgt_vocab_size": 100}),
    "pegasus-x": ("PegasusXForConditionalGeneration", {"block_size": 8, "num_global_tokens": 4}),
    "plbart": ("PLBartForConditionalGeneration", {}),
    "nllb-moe": (
        "NllbMoeForConditionalGeneration",
        {"num_experts": 4, "encoder_sparse_step": 1, "decoder_sparse_step": 1},
    ),
    "bigbird-pegasus": ("BigBirdPegasusForConditionalGeneration", {"attention_type": "original_full"}),
}
PICTURES = {
    "dinov2, registers": ("Dinov2WithRegistersModel", TOKENS),
    "yolos": ("YolosModel", {**TOKENS, "image_size": [32, 32], "num_detection_tokens": 4}),
    "vit-msn": ("ViTMSNModel", TOKENS),
}
ANY_SIDE = {
    "dinov3": ("DINOv3ViTModel", 8, TOKENS),
    "bit": ("BitModel", 4, {"embedding_size": 8, "num_groups": 4, **TWO}),
    "pvt-v2": ("PvtV2Model", 8, {**FOUR, "num_attention_heads": [1, 2, 2, 2]}),
    "swinv2": (
        "Swinv2Model",
        8,
        {"image_size": 64, "patch_size": 4, "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "window_size": 4},
    ),
    "swiftformer": ("SwiftFormerModel", 8, {"depths": [1, 1], "embed_dims": [16, 32], "image_size": 64}),
    "dinov3-convnext": ("DINOv3ConvNextModel", 4, FOUR),
    "hgnet-v2": ("HGNetV2Backbone", 8, {}),
}

ROWS = [
    *(Row(n, m, "decoder", {**SMALL, **c}, text) for n, (m, c) in DECODERS.items()),
    *(Row(n, m, "experts", {**SMALL, **EXPERTS, **c}, text) for n, (m, c) in MIXTURES.items()),
    *(Row(n, m, "state space", {**SMALL, **c}, text) for n, (m, c) in STATES.items()),
    *(Row(n, m, "encoder", {**SMALL, **c}, padded_text) for n, (m, c) in ENCODERS.items()),
    *(Row(n, m, "encoder-decoder", {**SMALL, **TWO_SIDED, **c}, text_to_text) for n, (m, c) in PAIRS.items()),
    *(Row(n, m, "vision", c, fixed_picture(32), unit=False) for n, (m, c) in PICTURES.items()),
    *(Row(n, m, "vision", c, picture(step, 8), unit=False) for n, (m, step, c) in ANY_SIDE.items()),
]
