"""Models of timm and diffusers, where these are installed: images of any size."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.zoo.rows import Inputs, Row, generator

# A row of a table is a line.
# fmt: off
UNET = {
    "sample_size": 8, "block_out_channels": (8, 16), "layers_per_block": 1, "norm_num_groups": 4, "cross_attention_dim": 16,
    "attention_head_dim": 8, "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
}  # fmt: skip
PLAIN_UNET = {
    "block_out_channels": (8, 16),
    "layers_per_block": 1,
    "norm_num_groups": 4,
    "attention_head_dim": 8,
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
    "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    "sample_size": 8,
}
DIT = {
    "num_attention_heads": 2,
    "attention_head_dim": 8,
    "in_channels": 4,
    "num_layers": 1,
    "sample_size": 8,
    "patch_size": 2,
    "num_embeds_ada_norm": 10,
    "norm_num_groups": 4,
}
SD3 = {
    "sample_size": 16,
    "patch_size": 2,
    "in_channels": 4,
    "num_layers": 1,
    "attention_head_dim": 8,
    "num_attention_heads": 2,
    "joint_attention_dim": 16,
    "caption_projection_dim": 16,
    "pooled_projection_dim": 16,
    "out_channels": 4,
    "pos_embed_max_size": 96,
}
FLUX = {
    "in_channels": 4,
    "num_layers": 1,
    "num_single_layers": 1,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": 16,
    "pooled_projection_dim": 16,
    "axes_dims_rope": (4, 4, 8),
    "patch_size": 1,
}
VAE = {
    "block_out_channels": (8, 16),
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
    "norm_num_groups": 4,
    "latent_channels": 4,
}


def image(word: str, step: int, least: int = 2, channels: int = 3) -> Callable[[int, int], Inputs]:
    """Images whose sides grow with the length, one faster than the other."""

    def inputs(batch: int, length: int) -> Inputs:
        high, wide = step * max(length // 4, least), step * max(length // 3, least)
        return {word: torch.randn(batch, channels, high, wide, generator=generator(batch, length))}

    return inputs


def noisy(batch: int, length: int) -> Inputs:
    """What a diffusion model is given with words for the picture."""
    drawn = generator(batch, length)
    sample = image("sample", 2, channels=4)(batch, length)
    return {**sample, "timestep": torch.tensor(3), "encoder_hidden_states": torch.randn(batch, 7, 16, generator=drawn)}


def plain_noise(batch: int, length: int) -> Inputs:
    return {**image("sample", 2)(batch, length), "timestep": torch.tensor(3)}


def with_class(batch: int, length: int) -> Inputs:
    given = image("hidden_states", 8, 1, channels=4)(batch, 1)
    return {**given, "timestep": torch.full((batch,), 3), "class_labels": torch.arange(batch) % 10}


def latent(batch: int, length: int) -> Inputs:
    drawn = generator(batch, length)
    words, pooled = torch.randn(batch, 7, 16, generator=drawn), torch.randn(batch, 16, generator=drawn)
    given = image("hidden_states", 2, channels=4)(batch, length)
    return {**given, "timestep": torch.full((batch,), 3), "encoder_hidden_states": words, "pooled_projections": pooled}


def packed(batch: int, length: int) -> Inputs:
    drawn = generator(batch, length)
    words, pooled = torch.randn(batch, 7, 16, generator=drawn), torch.randn(batch, 16, generator=drawn)
    places = {"img_ids": torch.zeros(length, 3), "txt_ids": torch.zeros(7, 3)}
    given = {"hidden_states": torch.randn(batch, length, 4, generator=drawn), "timestep": torch.full((batch,), 0.5)}
    return {**given, **places, "encoder_hidden_states": words, "pooled_projections": pooled}


ANY_SIZE = {"num_classes": 7}
TIMM = {
    "timm vit": ("vit_tiny_patch16_224", 16, {"dynamic_img_size": True, "depth": 1}),
    "timm eva02": ("eva02_tiny_patch14_224", 14, {"dynamic_img_size": True, "depth": 1}),
    "timm naflex-vit": ("naflexvit_base_patch16_gap", 16, {"embed_dim": 32, "depth": 1, "num_heads": 2}),
    "timm efficientnet": ("tf_efficientnetv2_b0", 8, {}),
    "timm mobilenetv4": ("mobilenetv4_conv_small_035", 8, {}),
    "timm maxxvit": ("maxvit_rmlp_pico_rw_256", 64, {"img_size": 64}),
    "timm ghostnet": ("ghostnetv2_100", 8, {}),
    "timm edgenext": ("edgenext_xx_small", 32, {}),
    "timm xcit": ("xcit_nano_12_p16_224", 16, {}),
    "timm fastvit": ("fastvit_t8", 32, {}),
    "timm resnet, blurred": ("resnetblur50", 8, {"layers": (1, 1, 1, 1)}),
    "timm levit": ("levit_conv_128s", 224, {}),
}
ROWS = [
    *(Row(n, m, "vision", {**ANY_SIZE, **c}, image("x", s), unit=False, library="timm") for n, (m, s, c) in TIMM.items()),
    Row("diffusers unet", "UNet2DConditionModel", "diffusion", UNET, noisy, unit=False, library="diffusers"),
    Row("diffusers unet, plain", "UNet2DModel", "diffusion", PLAIN_UNET, plain_noise, unit=False, library="diffusers"),
    Row("diffusers vae", "AutoencoderKL", "diffusion", VAE, image("sample", 4), unit=False, library="diffusers"),
    Row("diffusers tiny vae", "AutoencoderTiny", "diffusion", {"encoder_block_out_channels": (8, 8), "decoder_block_out_channels": (8, 8), "num_encoder_blocks": (1, 1), "num_decoder_blocks": (1, 1)}, image("sample", 4), unit=False, library="diffusers"),
    Row("diffusers dit", "DiTTransformer2DModel", "diffusion", DIT, with_class, unit=False, library="diffusers"),
    Row("diffusers sd3", "SD3Transformer2DModel", "diffusion", SD3, latent, unit=False, library="diffusers"),
    Row("diffusers flux", "FluxTransformer2DModel", "diffusion", FLUX, packed, unit=False, library="diffusers"),
]  # fmt: skip
